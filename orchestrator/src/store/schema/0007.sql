-- What work cost, as reported.

CREATE TABLE cost_events (
    id            TEXT PRIMARY KEY,
    company       TEXT NOT NULL REFERENCES companies,
    agent         TEXT NOT NULL REFERENCES agents,
    ticket        TEXT REFERENCES tickets,
    project       TEXT REFERENCES projects,
    goal          TEXT REFERENCES goals,
    run           TEXT REFERENCES runs,
    reported_by   TEXT NOT NULL,
    billing_code  TEXT,
    provider      TEXT NOT NULL,
    model         TEXT NOT NULL,
    cents         INTEGER NOT NULL CHECK (cents >= 0),
    input         INTEGER NOT NULL CHECK (input >= 0),
    cached_input  INTEGER NOT NULL CHECK (cached_input >= 0),
    output        INTEGER NOT NULL CHECK (output >= 0),
    occurred_at   INTEGER NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX cost_events_company ON cost_events (company, occurred_at);
CREATE INDEX cost_events_agent ON cost_events (agent, occurred_at);
