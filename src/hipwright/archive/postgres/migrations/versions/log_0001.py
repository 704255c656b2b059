"""The log: runs, events, blobs and locks, and the triggers that make the first three append-only."""

from alembic import op

revision = "0001"
down_revision = None

TABLES = """
CREATE TABLE runs (
    id TEXT COLLATE "C" PRIMARY KEY, ordinal BIGINT NOT NULL UNIQUE, data TEXT COLLATE "C" NOT NULL);
CREATE TABLE events (
    run TEXT COLLATE "C" NOT NULL REFERENCES runs(id), seq BIGINT NOT NULL, kind TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, data TEXT COLLATE "C" NOT NULL, clock DOUBLE PRECISION NOT NULL,
    cache_key TEXT COLLATE "C", PRIMARY KEY (run, seq));
CREATE INDEX events_by_cache_key ON events(cache_key) WHERE cache_key IS NOT NULL;
CREATE TABLE blobs (
    key TEXT COLLATE "C" PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL, data TEXT COLLATE "C" NOT NULL);
CREATE TABLE locks (
    run TEXT COLLATE "C" PRIMARY KEY, attempt BIGINT NOT NULL, holder TEXT COLLATE "C" NOT NULL,
    clock DOUBLE PRECISION NOT NULL);
"""

FUNCTIONS = """
CREATE FUNCTION hipwright_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'blobs' AND TG_OP = 'UPDATE' AND current_setting('hipwright.mend', true) = 'on' THEN
        RETURN NEW;  -- a damaged copy is replaced by the record itself
    END IF;
    RAISE EXCEPTION 'the archive is append-only: no % of %', TG_OP, TG_TABLE_NAME;
END $$;
CREATE FUNCTION hipwright_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE following BIGINT;
BEGIN
    EXECUTE format('SELECT COALESCE(MAX(seq) + 1, 0) FROM %I.events WHERE run = $1', TG_TABLE_SCHEMA)
        INTO following USING NEW.run;
    IF NEW.seq <> following THEN
        RAISE EXCEPTION 'events of a run are appended one after another';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER events_in_order BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION hipwright_in_order();
"""

FROZEN = """
CREATE TRIGGER {table}_frozen BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION hipwright_frozen();
CREATE TRIGGER {table}_not_emptied BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION hipwright_frozen();
"""


def upgrade() -> None:
    """Makes the tables."""
    op.execute(TABLES)
    op.execute(FUNCTIONS)
    for table in ("runs", "events", "blobs"):
        op.execute(FROZEN.format(table=table))


def downgrade() -> None:
    """There is nothing before the first revision."""
    raise NotImplementedError("an archive is not taken apart")
