-- PostgreSQL only. Changes of what processes cache: each reads those that others have committed. A row is written in the
-- transaction of its change, whatever made it; it is of use for seconds, and deleted after an hour.
CREATE TABLE changes (
    number {key},
    -- The transaction: by it a reader knows if it has seen the row.
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind {text} NOT NULL,
    -- Of the user, device, project or organization, or of the token.
    id {text} NOT NULL,
    -- The top of the tree that a device or an organization was in.
    tenant {text},
    device_key BIGINT,
    made TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX changes_xact ON changes (xact);
CREATE INDEX changes_age ON changes (made);

-- Notes a change of a kind, with the id in a column.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed_id text;
BEGIN
    EXECUTE format('SELECT ($1).%I', TG_ARGV[1]) INTO changed_id USING CASE TG_OP WHEN 'INSERT' THEN NEW ELSE OLD END;
    INSERT INTO changes (kind, id) VALUES (TG_ARGV[0], changed_id);
    RETURN NULL;
END
$$;

-- The role of users, what they may sign in with, and their place in the tree.
CREATE TRIGGER users_changed AFTER UPDATE OF role, disabled, organization_id, password_hash ON users FOR EACH ROW
    WHEN ((OLD.role, OLD.disabled, OLD.organization_id, OLD.password_hash)
        IS DISTINCT FROM (NEW.role, NEW.disabled, NEW.organization_id, NEW.password_hash))
    EXECUTE FUNCTION note_change('account', 'id');
CREATE TRIGGER users_deleted AFTER DELETE ON users FOR EACH ROW EXECUTE FUNCTION note_change('account', 'id');
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions FOR EACH ROW
    EXECUTE FUNCTION note_change('account', 'user_id');
CREATE TRIGGER api_keys_deleted AFTER DELETE ON api_keys FOR EACH ROW EXECUTE FUNCTION note_change('api_key', 'id');
CREATE TRIGGER jwts_revoked AFTER INSERT ON revoked_jwts FOR EACH ROW EXECUTE FUNCTION note_change('jwt', 'jti');

CREATE TRIGGER specifications_changed AFTER UPDATE OF planes ON specifications FOR EACH ROW
    WHEN (OLD.planes IS DISTINCT FROM NEW.planes) EXECUTE FUNCTION note_change('design', 'project_id');
CREATE TRIGGER retention_changed AFTER INSERT OR UPDATE OR DELETE ON project_retention FOR EACH ROW
    EXECUTE FUNCTION note_change('design', 'project_id');
CREATE TRIGGER projects_moved AFTER UPDATE OF organization_id ON projects FOR EACH ROW
    WHEN (OLD.organization_id IS DISTINCT FROM NEW.organization_id) EXECUTE FUNCTION note_change('design', 'id');
CREATE TRIGGER projects_deleted AFTER DELETE ON projects FOR EACH ROW EXECUTE FUNCTION note_change('design', 'id');

-- Only what persons change: runs change a device's status and labels all the time.
CREATE FUNCTION note_device() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (kind, id, tenant, device_key)
    SELECT 'device', OLD.id, split_part(o.lineage, '/', 2), OLD.key FROM organizations o WHERE o.id = OLD.organization_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER devices_changed AFTER UPDATE OF token, organization_id, project_id, name ON devices FOR EACH ROW
    WHEN ((OLD.token, OLD.organization_id, OLD.project_id, OLD.name)
        IS DISTINCT FROM (NEW.token, NEW.organization_id, NEW.project_id, NEW.name))
    EXECUTE FUNCTION note_device();
CREATE TRIGGER devices_deleted AFTER DELETE ON devices FOR EACH ROW EXECUTE FUNCTION note_device();

-- A move changes the parent of one organization, and the lineage of all beneath it: one row tells of the branch.
CREATE FUNCTION note_organization() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (kind, id, tenant) VALUES (TG_ARGV[0], OLD.id, split_part(OLD.lineage, '/', 2));
    RETURN NULL;
END
$$;
CREATE TRIGGER organizations_changed AFTER UPDATE OF parent_id, name ON organizations FOR EACH ROW
    WHEN ((OLD.parent_id, OLD.name) IS DISTINCT FROM (NEW.parent_id, NEW.name))
    EXECUTE FUNCTION note_organization('organization');
CREATE TRIGGER organizations_deleted AFTER DELETE ON organizations FOR EACH ROW
    EXECUTE FUNCTION note_organization('organization');
CREATE TRIGGER limits_changed AFTER UPDATE OF device_count_limit, data_usage_mb_limit ON organizations FOR EACH ROW
    WHEN ((OLD.device_count_limit, OLD.data_usage_mb_limit)
        IS DISTINCT FROM (NEW.device_count_limit, NEW.data_usage_mb_limit))
    EXECUTE FUNCTION note_organization('limits');

-- Alarms, for streams that follow them.
CREATE FUNCTION note_alarm() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (kind, id) VALUES ('alarm', NEW.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER alarms_changed AFTER INSERT OR UPDATE ON alarms FOR EACH ROW EXECUTE FUNCTION note_alarm();

-- Calls of the present minute that a process has counted, of callers that make many. Of use for a minute: not logged.
CREATE UNLOGGED TABLE rate_shares (
    minute BIGINT NOT NULL,
    node {text} NOT NULL,
    subject {text} NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (minute, node, subject)
);
