-- What work is for, where it belongs, and what it is called by.

CREATE TABLE goals (
    id          TEXT PRIMARY KEY,
    company     TEXT NOT NULL REFERENCES companies,
    title       TEXT NOT NULL,
    description TEXT,
    level       TEXT NOT NULL CHECK (level IN ('company', 'team', 'agent', 'task')),
    status      TEXT NOT NULL CHECK (status IN ('planned', 'active', 'achieved', 'cancelled')),
    parent      TEXT REFERENCES goals,
    owner       TEXT REFERENCES agents,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX goals_company ON goals (company, created_at);

CREATE TABLE projects (
    id          TEXT PRIMARY KEY,
    company     TEXT NOT NULL REFERENCES companies,
    name        TEXT NOT NULL,
    description TEXT,
    status      TEXT NOT NULL CHECK (status IN
        ('backlog', 'planned', 'in_progress', 'completed', 'cancelled')),
    goal        TEXT REFERENCES goals,
    lead        TEXT REFERENCES agents,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    UNIQUE (company, name)
) STRICT;

CREATE TABLE labels (
    id         TEXT PRIMARY KEY,
    company    TEXT NOT NULL REFERENCES companies,
    name       TEXT NOT NULL,
    color      TEXT,
    created_at INTEGER NOT NULL,
    UNIQUE (company, name)
) STRICT;

CREATE TABLE ticket_labels (
    ticket TEXT NOT NULL REFERENCES tickets,
    label  TEXT NOT NULL REFERENCES labels,
    PRIMARY KEY (ticket, label)
) STRICT, WITHOUT ROWID;
CREATE INDEX ticket_labels_label ON ticket_labels (label, ticket);

-- Until now a ticket's project and goal were any text. Each text becomes one by that name.
INSERT INTO projects (id, company, name, status, created_at, updated_at)
    SELECT lower(hex(randomblob(16))), company, project, 'in_progress', min(created_at), min(created_at)
    FROM tickets WHERE project IS NOT NULL GROUP BY company, project;
UPDATE tickets SET project =
    (SELECT id FROM projects WHERE projects.company = tickets.company AND name = tickets.project)
    WHERE project IS NOT NULL;
INSERT INTO goals (id, company, title, level, status, created_at, updated_at)
    SELECT lower(hex(randomblob(16))), company, goal, 'task', 'active', min(created_at), min(created_at)
    FROM tickets WHERE goal IS NOT NULL GROUP BY company, goal;
UPDATE tickets SET goal =
    (SELECT id FROM goals WHERE goals.company = tickets.company AND title = tickets.goal)
    WHERE goal IS NOT NULL;
CREATE INDEX tickets_project ON tickets (project, updated_at DESC) WHERE project IS NOT NULL;
CREATE INDEX tickets_goal ON tickets (goal, updated_at DESC) WHERE goal IS NOT NULL;

-- The words of tickets and comments. `search_rows` gives a ticket the number that FTS5 wants.
CREATE TABLE search_rows (
    id     INTEGER PRIMARY KEY,
    ticket TEXT NOT NULL UNIQUE REFERENCES tickets
) STRICT;
CREATE VIRTUAL TABLE ticket_words USING fts5 (
    title, description, content = '', contentless_delete = 1,
    tokenize = 'unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE comment_words USING fts5 (
    body, content = 'comments', content_rowid = 'seq',
    tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search_rows (ticket) SELECT id FROM tickets;
INSERT INTO ticket_words (rowid, title, description)
    SELECT search_rows.id, title, ifnull(description, '')
    FROM tickets JOIN search_rows ON ticket = tickets.id;
INSERT INTO comment_words (rowid, body) SELECT seq, body FROM comments;
CREATE TRIGGER ticket_words_new AFTER INSERT ON tickets BEGIN
    INSERT INTO search_rows (ticket) VALUES (new.id);
    INSERT INTO ticket_words (rowid, title, description)
        SELECT id, new.title, ifnull(new.description, '') FROM search_rows WHERE ticket = new.id;
END;
CREATE TRIGGER ticket_words_changed AFTER UPDATE OF title, description ON tickets
    WHEN old.title IS NOT new.title OR old.description IS NOT new.description BEGIN
    UPDATE ticket_words SET title = new.title, description = ifnull(new.description, '')
        WHERE rowid = (SELECT id FROM search_rows WHERE ticket = new.id);
END;
CREATE TRIGGER comment_words_new AFTER INSERT ON comments BEGIN
    INSERT INTO comment_words (rowid, body) VALUES (new.seq, new.body);
END;
