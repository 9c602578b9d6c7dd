"""The handlers of the HTTP API, a topic a file. The contract is docs/http-api.md."""
