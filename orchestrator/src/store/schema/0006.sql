-- What work leaves behind: files by their hash, and things that are elsewhere.

CREATE TABLE attachments (
    id               TEXT PRIMARY KEY,
    ticket           TEXT NOT NULL REFERENCES tickets,
    name             TEXT NOT NULL,
    claimed_type     TEXT,
    size             INTEGER NOT NULL,
    sha256           TEXT NOT NULL,
    created_by_agent TEXT REFERENCES agents,
    created_by_user  TEXT,
    created_by_run   TEXT REFERENCES runs,
    created_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX attachments_ticket ON attachments (ticket, created_at);
CREATE INDEX attachments_sha256 ON attachments (sha256);

CREATE TABLE work_products (
    id               TEXT PRIMARY KEY,
    ticket           TEXT NOT NULL REFERENCES tickets,
    kind             TEXT NOT NULL,
    provider         TEXT,
    title            TEXT NOT NULL,
    url              TEXT,
    status           TEXT,
    is_primary       INTEGER NOT NULL DEFAULT 0,
    metadata         TEXT,
    created_by_agent TEXT REFERENCES agents,
    created_by_user  TEXT,
    created_by_run   TEXT REFERENCES runs,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX work_products_ticket ON work_products (ticket, created_at);
CREATE UNIQUE INDEX work_products_primary ON work_products (ticket) WHERE is_primary = 1;
