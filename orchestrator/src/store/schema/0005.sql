-- What an agent may not do until a person says so.

CREATE TABLE approvals (
    id                 TEXT PRIMARY KEY,
    company            TEXT NOT NULL REFERENCES companies,
    kind               TEXT NOT NULL CHECK (kind IN
        ('hire_agent', 'approve_ceo_strategy', 'budget_override_required', 'request_board_approval')),
    status             TEXT NOT NULL CHECK (status IN
        ('pending', 'revision_requested', 'approved', 'rejected', 'cancelled')),
    payload            TEXT NOT NULL,
    fingerprint        TEXT NOT NULL,
    requested_by_agent TEXT REFERENCES agents,
    requested_by_user  TEXT,
    requested_by_run   TEXT REFERENCES runs,
    note               TEXT,
    decided_by         TEXT,
    decided_at         INTEGER,
    made_agent         TEXT REFERENCES agents,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_company ON approvals (company, created_at);
CREATE INDEX approvals_run ON approvals (requested_by_run) WHERE requested_by_run IS NOT NULL;

CREATE TABLE approval_tickets (
    approval TEXT NOT NULL REFERENCES approvals,
    ticket   TEXT NOT NULL REFERENCES tickets,
    PRIMARY KEY (approval, ticket)
) STRICT, WITHOUT ROWID;
CREATE INDEX approval_tickets_ticket ON approval_tickets (ticket);

CREATE TABLE approval_comments (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    approval     TEXT NOT NULL REFERENCES approvals,
    author_agent TEXT REFERENCES agents,
    author_user  TEXT,
    body         TEXT NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX approval_comments_approval ON approval_comments (approval, seq);
