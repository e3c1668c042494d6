"""Records become tables, figures, a sentence, and one page that needs nothing else.

`summary` makes tables of runs, `section` is such a table with its statistics, `conclusion` puts it into words; `chart`
draws, `figures` says what, `page` writes HTML and `markdown` tables.
Nothing here trains or reads data.
"""
