-- What is kept of the values of a project's storage elements: what its design says, and what former designs have hidden.
CREATE TABLE project_retention (
    project_id {text} PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    bounds {text} NOT NULL
);
