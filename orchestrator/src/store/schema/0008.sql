-- What an agent may set others to, and what a profile wants asked first.
ALTER TABLE agents ADD COLUMN may_create INTEGER;
ALTER TABLE agents ADD COLUMN may_assign INTEGER;
ALTER TABLE agents ADD COLUMN may_wake INTEGER;

-- The run whose words a wake carries.
ALTER TABLE wakes ADD COLUMN by_run TEXT REFERENCES runs;
CREATE INDEX wakes_merged ON wakes (merged_into) WHERE merged_into IS NOT NULL;

-- From the configuration; replaced at each start.
CREATE TABLE profiles (
    name        TEXT PRIMARY KEY,
    agent_wakes TEXT NOT NULL CHECK (agent_wakes IN ('allow', 'approve', 'refuse')),
    concurrent  INTEGER CHECK (concurrent >= 0),
    quiet       TEXT
) STRICT, WITHOUT ROWID;

-- Approvals of two more kinds: the table is made again with its rows.
CREATE TABLE approvals2 (
    id                 TEXT PRIMARY KEY,
    company            TEXT NOT NULL REFERENCES companies,
    kind               TEXT NOT NULL CHECK (kind IN
        ('hire_agent', 'approve_ceo_strategy', 'budget_override_required', 'request_board_approval',
         'change_agent', 'wake_agent')),
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
INSERT INTO approvals2 SELECT * FROM approvals;
CREATE TABLE approval_tickets2 (
    approval TEXT NOT NULL REFERENCES approvals2,
    ticket   TEXT NOT NULL REFERENCES tickets,
    PRIMARY KEY (approval, ticket)
) STRICT, WITHOUT ROWID;
INSERT INTO approval_tickets2 SELECT * FROM approval_tickets;
CREATE TABLE approval_comments2 (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    approval     TEXT NOT NULL REFERENCES approvals2,
    author_agent TEXT REFERENCES agents,
    author_user  TEXT,
    body         TEXT NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;
INSERT INTO approval_comments2 SELECT * FROM approval_comments;
DROP TABLE approval_tickets;
DROP TABLE approval_comments;
DROP TABLE approvals;
ALTER TABLE approvals2 RENAME TO approvals;
ALTER TABLE approval_tickets2 RENAME TO approval_tickets;
ALTER TABLE approval_comments2 RENAME TO approval_comments;
CREATE INDEX approvals_company ON approvals (company, created_at);
CREATE INDEX approvals_run ON approvals (requested_by_run) WHERE requested_by_run IS NOT NULL;
CREATE INDEX approval_tickets_ticket ON approval_tickets (ticket);
CREATE INDEX approval_comments_approval ON approval_comments (approval, seq);
