-- Letters of an hour that began with the first of them, of a tenant and of each account that was sent one in that hour; and the
-- links that an address was sent.
CREATE TABLE letter_hours (
    -- The identifier of an organization at the top, or of a user; or 'to ' and an address.
    whose {text} PRIMARY KEY,
    begins_at BIGINT NOT NULL,
    links BIGINT NOT NULL,
    -- Of a tenant, with a place for each account that is to hear that there was no room for more.
    notices BIGINT NOT NULL,
    -- 1: the account has heard that.
    is_told BIGINT NOT NULL
);
CREATE INDEX letter_hours_end ON letter_hours (begins_at);

-- Letters and notices wait apart for each tenant, and so calls do already; those that are there share a turn.
UPDATE deliveries SET destination = '' WHERE kind IN ('mail', 'notice') AND destination IS NULL;
