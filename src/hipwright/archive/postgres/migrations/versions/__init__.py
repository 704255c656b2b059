"""The revisions of the schema, oldest first. A released one is never changed: a new one follows it."""
