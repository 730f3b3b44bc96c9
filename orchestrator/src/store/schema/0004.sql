-- Questions on a ticket that somebody else answers.

CREATE TABLE interactions (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE,
    ticket           TEXT NOT NULL REFERENCES tickets,
    kind             TEXT NOT NULL CHECK (kind IN
        ('request_confirmation', 'request_checkbox_confirmation', 'request_item_verdicts',
         'ask_user_questions', 'suggest_tasks')),
    status           TEXT NOT NULL CHECK (status IN
        ('pending', 'accepted', 'rejected', 'answered', 'cancelled', 'expired', 'failed')),
    title            TEXT,
    summary          TEXT,
    payload          TEXT NOT NULL,
    result           TEXT,
    continuation     TEXT NOT NULL CHECK (continuation IN
        ('none', 'wake_assignee', 'wake_assignee_on_accept')),
    resolver         TEXT NOT NULL CHECK (resolver IN ('anyone', 'not_creator', 'human_only')),
    addressee        TEXT REFERENCES agents,
    document         TEXT REFERENCES documents,
    revision         TEXT REFERENCES revisions,
    idempotency_key  TEXT,
    fingerprint      BLOB NOT NULL,
    created_by_agent TEXT REFERENCES agents,
    created_by_user  TEXT,
    created_by_run   TEXT REFERENCES runs,
    resolved_by      TEXT,
    created_at       INTEGER NOT NULL,
    resolved_at      INTEGER,
    CHECK ((status = 'pending') = (resolved_at IS NULL))
) STRICT;
CREATE INDEX interactions_ticket ON interactions (ticket, seq);
CREATE INDEX interactions_pending ON interactions (ticket) WHERE status = 'pending';
CREATE INDEX interactions_document ON interactions (document) WHERE status = 'pending';
CREATE INDEX interactions_run ON interactions (created_by_run) WHERE created_by_run IS NOT NULL;
CREATE UNIQUE INDEX interactions_key ON interactions (ticket, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
