-- Work that comes back: each due slot is a row, whatever became of it.

CREATE TABLE routines (
    id          TEXT PRIMARY KEY,
    company     TEXT NOT NULL REFERENCES companies,
    name        TEXT NOT NULL,
    description TEXT,
    assignee    TEXT NOT NULL REFERENCES agents,
    project     TEXT REFERENCES projects,
    priority    TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('active', 'paused', 'archived')),
    cron        TEXT,
    zone        TEXT NOT NULL,
    catch_up    TEXT NOT NULL CHECK (catch_up IN ('skip_missed', 'run_once', 'run_all')),
    overlap     TEXT NOT NULL CHECK (overlap IN ('skip_if_active', 'always')),
    next_due    INTEGER,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    UNIQUE (company, name)
) STRICT;
CREATE INDEX routines_due ON routines (next_due) WHERE next_due IS NOT NULL;

CREATE TABLE slots (
    id         TEXT PRIMARY KEY,
    routine    TEXT NOT NULL REFERENCES routines,
    due_at     INTEGER NOT NULL,
    trigger    TEXT NOT NULL CHECK (trigger IN ('schedule', 'api', 'webhook')),
    state      TEXT NOT NULL CHECK (state IN ('started', 'skipped', 'missed')),
    reason     TEXT,
    ticket     TEXT REFERENCES tickets,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX slots_due ON slots (routine, due_at) WHERE trigger = 'schedule';
CREATE INDEX slots_recent ON slots (routine, due_at DESC);
