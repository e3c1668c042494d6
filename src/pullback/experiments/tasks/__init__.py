"""One file per task: its data, its encoder, its decoder and its measures."""
