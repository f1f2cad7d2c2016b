//! Changes of an account: its profile, its password, and requests by links in e-mails.

use crate::check::{Input, Patch};
use crate::error::Result;
use crate::ids::OrganizationId;
use crate::json::Json;
use crate::preferences::{Preferences, PreferencesInput};
use crate::role::Role;
use crate::user::User;

/// Shortest password that is set on an existing account, in characters (specification: Limits).
pub const PASSWORD_MIN: usize = 6;
/// Longest such password (specification: Limits; on creation it may be longer).
pub const PASSWORD_MAX: usize = 20;
/// Longest password that is only compared, in characters.
const CURRENT_PASSWORD_MAX: usize = 1024;
/// Longest token that is read, in characters; ours have 64.
const TOKEN_MAX: usize = 256;

/// The body that updates a user (specification: Users).
#[derive(Clone, Debug)]
pub struct UserInput {
    /// Must be unchanged.
    username: Option<String>,
    /// Must be unchanged.
    email: Option<String>,
    /// Required.
    pub role: Role,
    /// 1 to 80 characters.
    first_name: Option<String>,
    /// 1 to 80 characters.
    last_name: Option<String>,
    /// Required; 1 to 80 characters.
    company: String,
    /// Up to 80 characters.
    job_title: Patch<String>,
    /// Up to 80 characters.
    language: Patch<String>,
    /// Signature that the Terms of Service were accepted.
    tos_hash: Patch<String>,
    /// `null` restores the defaults.
    preferences: Patch<PreferencesInput>,
    /// The new organization.
    pub organization: Option<OrganizationId>,
    /// True to disable, false to enable.
    pub disabled: Option<bool>,
    /// A new password.
    pub password: Option<String>,
    /// The current password, required to change one's own.
    pub current_password: Option<String>,
    /// Credentials that end with a new password of one's own.
    pub ends: CredentialEnds,
    /// The reason, for the operator.
    pub reason: Option<String>,
}

impl UserInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        // Clients send it back with the user; organizationId determines it, so it is ignored.
        let _ = input.text_patch("organizationName", 0, 80);
        let read = Self {
            username: input.text("username", 1, 254),
            email: input.text("email", 3, 254),
            role: read_role(&mut input),
            first_name: input.text("firstName", 1, 80),
            last_name: input.text("lastName", 1, 80),
            company: input.required_text("company", 1, 80),
            job_title: input.text_patch("jobTitle", 0, 80),
            language: input.text_patch("language", 0, 80),
            tos_hash: input.text_patch("tosHash", 0, 512),
            preferences: input.nested("preferences", PreferencesInput::read),
            organization: input.id("organizationId"),
            disabled: input.boolean("disabled"),
            password: read_password(&mut input, false),
            current_password: input.text("currentPassword", 0, CURRENT_PASSWORD_MAX),
            ends: CredentialEnds::read(&mut input),
            reason: input.text("reason", 1, 300),
        };
        input.unless_any(read)
    }

    /// Returns the immutable names that differ from those of the user.
    pub fn renamed(&self, user: &User) -> impl Iterator<Item = &'static str> {
        let differs = |said: &Option<String>, is: &str| said.as_deref().is_some_and(|said| said != is);
        let (username, email) = (differs(&self.username, &user.username), differs(&self.email, &user.email));
        [("username", username), ("email", email)].into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name)
    }

    /// Returns the user with its new profile; organization, password and reason are handled separately.
    pub fn over(self, user: User) -> User {
        let preferences = match self.preferences {
            Patch::Keep => user.preferences,
            Patch::Clear => None,
            Patch::Set(change) => Some(change.over(Preferences::of(user.preferences.as_ref())).json()),
        };
        User {
            role: self.role,
            first_name: self.first_name.unwrap_or(user.first_name),
            last_name: self.last_name.unwrap_or(user.last_name),
            company: self.company,
            job_title: self.job_title.over(user.job_title),
            language: self.language.over(user.language),
            tos_hash: self.tos_hash.over(user.tos_hash),
            disabled: self.disabled.unwrap_or(user.disabled),
            preferences,
            ..user
        }
    }
}

/// Credentials that a user ends with a password, beside the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CredentialEnds {
    /// The user's API keys.
    pub api_keys: bool,
    /// The links of dashboards that the user made.
    pub links: bool,
}

impl CredentialEnds {
    fn read(input: &mut Input<'_>) -> Self {
        Self {
            api_keys: input.boolean("endApiKeys").unwrap_or_default(),
            links: input.boolean("endLinks").unwrap_or_default(),
        }
    }
}

/// The body that sets a new password by a link in an e-mail.
#[derive(Clone)]
pub struct ResetInput {
    /// The token of the link.
    pub token: String,
    /// The new password.
    pub password: String,
    /// Credentials that end with the old one.
    pub ends: CredentialEnds,
}

impl ResetInput {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let token = input.required_text("token", 1, TOKEN_MAX);
        let password = read_password(&mut input, true).unwrap_or_default();
        let ends = CredentialEnds::read(&mut input);
        input.unless_any(Self { token, password, ends })
    }
}

/// Reads the body that names an account: `{emailOrUsername}`.
pub fn read_account_name(body: &Json<'_>) -> Result<String> {
    let mut input = Input::body(body)?;
    let name = input.required_text("emailOrUsername", 1, 254);
    input.unless_any(name)
}

/// Returns the role in a body, if any, so that a forbidden role is refused before other faults.
pub fn role_in(body: &Json<'_>) -> Option<Role> {
    Role::named(body.get("role")?.as_text()?)
}

/// Reads a required role.
pub(crate) fn read_role(input: &mut Input<'_>) -> Role {
    let name = input.required_text("role", 0, 32);
    Role::named(&name).unwrap_or_else(|| {
        if matches!(input.member("role"), Some(Json::Text(_))) {
            input.fault("role", "is no role");
        }
        Role::BasicUser
    })
}

/// Reads an optional role; `null` counts as left out.
pub(crate) fn read_role_if(input: &mut Input<'_>) -> Option<Role> {
    match input.member("role") {
        None | Some(Json::Null) => None,
        Some(_) => Some(read_role(input)),
    }
}

/// Reads a new password and its confirmation.
fn read_password(input: &mut Input<'_>, required: bool) -> Option<String> {
    let [password, confirmation] = ["password", "passwordConfirmation"].map(|name| {
        if required {
            input.require(name);
        }
        input.text(name, PASSWORD_MIN, PASSWORD_MAX)
    });
    if password.is_some() && confirmation.is_some() && password != confirmation {
        input.fault("passwordConfirmation", "must match password");
    }
    // A missing required one was reported already.
    match ["password", "passwordConfirmation"].map(|name| input.member(name).is_some()) {
        [true, false] if !required => input.fault("passwordConfirmation", "is required beside password"),
        [false, true] if !required => input.fault("password", "is required beside passwordConfirmation"),
        _ => {}
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    fn faults(text: &str) -> Vec<String> {
        match UserInput::read(&parse(text).unwrap()) {
            Err(Error::Invalid(faults)) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn update_without_role_and_company_is_refused() {
        assert_eq!(faults("{}"), ["role", "company"]);
        assert!(UserInput::read(&parse(r#"{"role": "manager", "company": "Acme"}"#).unwrap()).is_ok());
        assert_eq!(faults(r#"{"role": "", "company": ""}"#), ["role", "company"]);
        assert_eq!(faults(r#"{"role": null, "company": 1}"#), ["role", "company"]);
    }

    #[test]
    fn current_password_is_a_bounded_text() {
        let with = |current: &str| format!(r#"{{"role": "manager", "company": "Acme", "currentPassword": {current}}}"#);
        for wrong in ["7", "null", "{}", &format!("{:?}", "x".repeat(CURRENT_PASSWORD_MAX + 1))] {
            assert_eq!(faults(&with(wrong)), ["currentPassword"], "{wrong}");
        }
        for right in ["\"\"", &format!("{:?}", "x".repeat(CURRENT_PASSWORD_MAX))] {
            assert!(UserInput::read(&parse(&with(right)).unwrap()).is_ok());
        }
    }

    // Holds: user.password
    #[test]
    fn password_without_its_confirmation_is_refused() {
        let with = |members: &str| format!(r#"{{"role": "manager", "company": "Acme", {members}}}"#);
        for (members, fault) in [
            (r#""password": "secret""#, "passwordConfirmation"),
            (r#""passwordConfirmation": "secret""#, "password"),
            (r#""password": "secret", "passwordConfirmation": "secreT""#, "passwordConfirmation"),
        ] {
            assert_eq!(faults(&with(members)), [fault], "{members}");
        }
        let short = r#""password": "short", "passwordConfirmation": "short""#;
        assert_eq!(faults(&with(short)), ["password", "passwordConfirmation"]);
        let long = format!(r#""password": "{0}", "passwordConfirmation": "{0}""#, "x".repeat(21));
        assert_eq!(faults(&with(&long)), ["password", "passwordConfirmation"]);
    }
}
