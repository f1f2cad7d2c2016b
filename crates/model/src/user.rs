//! Users and their profiles.

use crate::access::Lineage;
use crate::check::Input;
use crate::error::Result;
use crate::ids::{ApiKeyId, OrganizationId, UserId};
use crate::json::{Json, RawJson};
use crate::role::Role;
use crate::time::Timestamp;
use crate::user_input::{read_role, read_role_if};

/// A user in the registry, without its password.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// Its identifier.
    pub id: UserId,
    /// Globally unique regardless of case.
    pub username: String,
    /// Globally unique regardless of case.
    pub email: String,
    /// Its rank.
    pub role: Role,
    /// Its organization.
    pub organization: OrganizationId,
    /// The lineage of its organization.
    pub lineage: Lineage,
    /// The name of its organization.
    pub organization_name: String,
    /// Signature that the Terms of Service were accepted.
    pub tos_hash: Option<String>,
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Company.
    pub company: String,
    /// Job title.
    pub job_title: Option<String>,
    /// Language.
    pub language: Option<String>,
    /// Notification preferences, as set; `None` for the defaults.
    pub preferences: Option<RawJson>,
    /// True if all its credentials are refused.
    pub disabled: bool,
    /// True if its e-mail address was verified.
    pub verified: bool,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time of its last call.
    pub last_active: Option<Timestamp>,
}

/// The body that registers or creates a user (specification: NewUser).
#[derive(Clone, Debug)]
pub struct NewUser {
    /// 1 to 254 characters.
    pub username: String,
    /// An e-mail address.
    pub email: String,
    /// Required on registration; a user made without one sets it through a reset.
    pub password: Option<String>,
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Company.
    pub company: String,
    /// The role asked for.
    pub role: Role,
    /// The organization; the operation defines its default.
    pub organization: Option<OrganizationId>,
    /// Signature that the Terms of Service were accepted.
    pub tos_hash: Option<String>,
    /// Language.
    pub language: Option<String>,
}

impl NewUser {
    /// Reads and checks a body. Registration demands a password, creation by a user does not.
    pub fn read(body: &Json<'_>, password_required: bool) -> Result<Self> {
        let mut input = Input::body(body)?;
        let mut secret = |name: &str, min| match password_required {
            true => Some(input.required_text(name, min, 128)),
            false => input.text(name, min, 128),
        };
        let (password, confirmation) = (secret("password", 6), secret("passwordConfirmation", 0));
        if password != confirmation
            && input.member("password").is_some() | input.member("passwordConfirmation").is_some()
        {
            input.fault("passwordConfirmation", "must match password");
        }
        let role = read_role(&mut input);
        let email = input.required_email("email");
        let read = Self {
            username: input.required_text("username", 1, 254),
            email,
            password,
            first_name: input.required_text("firstName", 1, 80),
            last_name: input.required_text("lastName", 1, 80),
            company: input.required_text("company", 1, 80),
            role,
            organization: input.id("organizationId"),
            tos_hash: input.text_patch("tosHash", 0, 512).over(None),
            language: input.text_patch("language", 0, 80).over(None),
        };
        input.unless_any(read)
    }
}

/// The body of a login.
#[derive(Clone)]
pub struct Login {
    /// Username or e-mail address.
    pub name: String,
    /// The password in plain text.
    pub password: String,
}

impl Login {
    /// Reads and checks a body.
    pub fn read(body: &Json<'_>) -> Result<Self> {
        let mut input = Input::body(body)?;
        let read = Self {
            name: input.required_text("usernameOrEmail", 0, 254),
            password: input.required_text("password", 0, 1024),
        };
        input.unless_any(read)
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiKey {
    /// Its identifier.
    pub id: ApiKeyId,
    /// Its user.
    pub user: UserId,
    /// Its name, 1 to 80 characters.
    pub name: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Its role, if lower than that of its user; `None` for the user's role.
    pub role: Option<Role>,
    /// Expiry; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// Time of the last use.
    pub last_used_at: Option<Timestamp>,
}

/// The body that makes an API key.
#[derive(Clone, Debug)]
pub struct ApiKeyInput {
    /// 1 to 80 characters.
    pub name: String,
    /// The highest role that it gets.
    pub role: Option<Role>,
    /// Expiry.
    pub expires_at: Option<Timestamp>,
}

impl ApiKeyInput {
    /// Reads and checks a body. Its expiry must be after `now`.
    pub fn read(body: &Json<'_>, now: Timestamp) -> Result<Self> {
        let mut input = Input::body(body)?;
        let expires_at = input.time("expiresAt");
        if expires_at.is_some_and(|end| end <= now) {
            input.fault("expiresAt", "must lie in the future");
        }
        let read = Self { name: input.required_text("name", 1, 80), role: read_role_if(&mut input), expires_at };
        input.unless_any(read)
    }
}
