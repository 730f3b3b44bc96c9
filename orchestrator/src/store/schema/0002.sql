-- How many runs in a row led to a wake: 0 is a person's, n + 1 follows from a run whose wake had n.
ALTER TABLE wakes ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
CREATE INDEX wakes_caused ON wakes (agent, created_at) WHERE depth > 0;

-- What a run has written so far: changes, and bytes.
ALTER TABLE runs ADD COLUMN writes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN written INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_wake ON runs (wake);
