"""The console, `/console`: pages for browsers, which show what the API shows and change nothing.

- Each page is made of answers of the API's own operations, for the caller of the session. So a page shows
  what the API would tell that user, and each look is authorized and recorded as a request to the API is.
- A page is one module: a `router` with its routes, and a template. `catalog.http.console.app` lists them.
- There are no scripts, and nothing is loaded from elsewhere.
"""
