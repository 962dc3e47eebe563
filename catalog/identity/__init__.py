"""Who calls: access tokens of identity providers, and the catalog's own tokens.

`bearer` tells which of them a text is; `access_tokens` checks the signature, `claims` the content, and
`provider_keys` keeps the keys of a provider.
"""
