-- Webhooks that start routines, and which deliveries came already.

CREATE TABLE hooks (
    routine    TEXT PRIMARY KEY REFERENCES routines,
    kind       TEXT NOT NULL CHECK (kind IN ('bearer', 'hmac_sha256', 'github_hmac')),
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE deliveries (
    routine TEXT NOT NULL REFERENCES routines,
    proof   TEXT NOT NULL,
    slot    TEXT NOT NULL REFERENCES slots,
    at      INTEGER NOT NULL,
    PRIMARY KEY (routine, proof)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_recent ON deliveries (routine, at DESC);
