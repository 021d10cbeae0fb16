"""Pages that a browser shows: pieces of HTML and the templates that they are made of."""
