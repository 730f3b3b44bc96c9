-- What may be spent in a month, in cents; no bound where there is none.
ALTER TABLE companies ADD COLUMN budget INTEGER CHECK (budget >= 0);
ALTER TABLE agents ADD COLUMN budget INTEGER CHECK (budget >= 0);

-- How many runs in a row ended without changing anything on the ticket, since a person last asked.
ALTER TABLE tickets ADD COLUMN idle_runs INTEGER NOT NULL DEFAULT 0;
