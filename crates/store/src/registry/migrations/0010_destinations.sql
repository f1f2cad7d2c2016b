-- What was called a lane is a destination: the word of the program and of its papers.
ALTER TABLE deliveries RENAME COLUMN lane TO destination;
DROP INDEX deliveries_lanes;
CREATE INDEX deliveries_destinations ON deliveries (kind, destination, due_at, id);
