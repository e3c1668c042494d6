"""Records become tables, figures, a sentence, and one page that needs nothing else.

`summary` knows runs and statistics, `chart` draws, `figures` says what, `page` writes HTML and `markdown` tables.
Nothing here trains or reads data.
"""
