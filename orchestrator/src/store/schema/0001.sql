-- Ids are UUIDs as text; times are Unix milliseconds.

CREATE TABLE companies (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    prefix      TEXT NOT NULL UNIQUE,
    next_ticket INTEGER NOT NULL DEFAULT 1,
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE agents (
    id         TEXT PRIMARY KEY,
    company    TEXT NOT NULL REFERENCES companies,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    title      TEXT,
    status     TEXT NOT NULL CHECK (status IN ('active', 'paused', 'terminated')),
    profile    TEXT NOT NULL,
    reports_to TEXT REFERENCES agents,
    adapter    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (company, name)
) STRICT;

CREATE TABLE tickets (
    id               TEXT PRIMARY KEY,
    company          TEXT NOT NULL REFERENCES companies,
    number           INTEGER NOT NULL,
    identifier       TEXT NOT NULL UNIQUE,
    title            TEXT NOT NULL,
    title_key        TEXT NOT NULL,
    description      TEXT,
    status           TEXT NOT NULL CHECK (status IN
        ('backlog', 'todo', 'in_progress', 'in_review', 'done', 'blocked', 'cancelled')),
    priority         TEXT NOT NULL CHECK (priority IN ('critical', 'high', 'medium', 'low')),
    assignee_agent   TEXT REFERENCES agents,
    assignee_user    TEXT,
    parent           TEXT REFERENCES tickets,
    project          TEXT,
    goal             TEXT,
    billing_code     TEXT,
    unblock          TEXT,
    checkout_run     TEXT REFERENCES runs,
    idempotency_key  TEXT,
    created_by_agent TEXT REFERENCES agents,
    created_by_user  TEXT,
    created_by_run   TEXT REFERENCES runs,
    started_at       INTEGER,
    completed_at     INTEGER,
    cancelled_at     INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    UNIQUE (company, number),
    CHECK (assignee_agent IS NULL OR assignee_user IS NULL),
    CHECK (status <> 'in_progress' OR assignee_agent IS NOT NULL OR assignee_user IS NOT NULL)
) STRICT;
CREATE INDEX tickets_updated ON tickets (company, updated_at DESC, id DESC);
CREATE INDEX tickets_status ON tickets (company, status, updated_at DESC);
CREATE INDEX tickets_assignee ON tickets (assignee_agent, status);
CREATE INDEX tickets_parent ON tickets (parent);
CREATE INDEX tickets_same_title ON tickets (company, title_key, created_at);
CREATE INDEX tickets_creator ON tickets (created_by_run) WHERE created_by_run IS NOT NULL;
CREATE INDEX tickets_checkout ON tickets (checkout_run) WHERE checkout_run IS NOT NULL;
CREATE UNIQUE INDEX tickets_idempotency ON tickets (company, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE blockers (
    ticket  TEXT NOT NULL REFERENCES tickets,
    blocker TEXT NOT NULL REFERENCES tickets,
    PRIMARY KEY (ticket, blocker),
    CHECK (ticket <> blocker)
) STRICT, WITHOUT ROWID;
CREATE INDEX blockers_of ON blockers (blocker);

CREATE TABLE comments (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    ticket       TEXT NOT NULL REFERENCES tickets,
    author_type  TEXT NOT NULL CHECK (author_type IN ('user', 'agent', 'system')),
    author_agent TEXT REFERENCES agents,
    author_user  TEXT,
    run          TEXT REFERENCES runs,
    body         TEXT NOT NULL,
    client_key   TEXT,
    created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX comments_ticket ON comments (ticket, seq);
CREATE INDEX comments_run ON comments (run) WHERE run IS NOT NULL;
CREATE UNIQUE INDEX comments_client_key ON comments (ticket, client_key)
    WHERE client_key IS NOT NULL;

CREATE TABLE wakes (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    company     TEXT NOT NULL REFERENCES companies,
    agent       TEXT NOT NULL REFERENCES agents,
    ticket      TEXT REFERENCES tickets,
    reason      TEXT NOT NULL,
    comments    TEXT NOT NULL DEFAULT '[]',
    payload     TEXT NOT NULL DEFAULT 'null',
    state       TEXT NOT NULL CHECK (state IN ('queued', 'started', 'merged', 'dropped')),
    merged_into TEXT REFERENCES wakes (id),
    run         TEXT REFERENCES runs,
    corrective  INTEGER NOT NULL DEFAULT 0,
    actor       TEXT NOT NULL,
    not_before  INTEGER NOT NULL DEFAULT 0,
    note        TEXT,
    created_at  INTEGER NOT NULL
) STRICT;
-- At most one wake of an agent waits per ticket: a second one merges.
CREATE UNIQUE INDEX wakes_queued ON wakes (agent, ifnull(ticket, '')) WHERE state = 'queued';
CREATE INDEX wakes_ticket ON wakes (ticket, seq);

CREATE TABLE runs (
    id         TEXT PRIMARY KEY,
    company    TEXT NOT NULL REFERENCES companies,
    agent      TEXT NOT NULL REFERENCES agents,
    ticket     TEXT REFERENCES tickets,
    wake       TEXT NOT NULL REFERENCES wakes (id),
    status     TEXT NOT NULL CHECK (status IN
        ('starting', 'running', 'ending', 'succeeded', 'failed', 'cancelled', 'lost')),
    corrective INTEGER NOT NULL DEFAULT 0,
    token_hash BLOB NOT NULL UNIQUE,
    epoch      INTEGER NOT NULL,
    slice      INTEGER NOT NULL,
    slice_held INTEGER NOT NULL DEFAULT 1,
    cancel     INTEGER NOT NULL DEFAULT 0,
    evidence   TEXT,
    outcome    TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER
) STRICT;
-- The promise of one run, as constraints.
CREATE UNIQUE INDEX runs_live_ticket ON runs (ticket)
    WHERE ticket IS NOT NULL AND status IN ('starting', 'running', 'ending');
CREATE UNIQUE INDEX runs_live_agent ON runs (agent)
    WHERE status IN ('starting', 'running', 'ending');
CREATE UNIQUE INDEX runs_slice ON runs (slice) WHERE slice_held = 1;
CREATE INDEX runs_ticket ON runs (ticket, created_at);
CREATE INDEX runs_recent ON runs (company, created_at DESC);

CREATE TABLE leases (
    run        TEXT PRIMARY KEY REFERENCES runs,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE documents (
    id         TEXT PRIMARY KEY,
    ticket     TEXT NOT NULL REFERENCES tickets,
    key        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (ticket, key)
) STRICT;

CREATE TABLE revisions (
    id           TEXT PRIMARY KEY,
    document     TEXT NOT NULL REFERENCES documents,
    number       INTEGER NOT NULL,
    title        TEXT,
    format       TEXT NOT NULL,
    body         TEXT NOT NULL,
    summary      TEXT,
    author_type  TEXT NOT NULL,
    author_agent TEXT REFERENCES agents,
    author_user  TEXT,
    run          TEXT REFERENCES runs,
    created_at   INTEGER NOT NULL,
    UNIQUE (document, number)
) STRICT;

-- What happened, in order. hash = SHA-256(previous hash, then every other column).
CREATE TABLE journal (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    company TEXT,
    ticket  TEXT,
    run     TEXT,
    facts   TEXT NOT NULL,
    hash    BLOB NOT NULL
) STRICT;
CREATE INDEX journal_ticket ON journal (ticket, seq) WHERE ticket IS NOT NULL;
CREATE INDEX journal_company ON journal (company, seq) WHERE company IS NOT NULL;
CREATE INDEX journal_run ON journal (run, seq) WHERE run IS NOT NULL;
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TABLE journal_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
INSERT INTO journal_head VALUES (1, 0, zeroblob(32));
