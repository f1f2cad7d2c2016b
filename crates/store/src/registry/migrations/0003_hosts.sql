-- Where a delivery goes that goes to a host outside. It stands in the index, so that what is due is known without its body.
-- What an earlier version has put there gets it when the server starts.
ALTER TABLE deliveries ADD COLUMN host {text};
DROP INDEX deliveries_due;
CREATE INDEX deliveries_due ON deliveries (kind, due_at, id, host);
