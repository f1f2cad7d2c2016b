//! Users and their API keys.

use isobar_model::access::Action;
use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::preferences::Preferences;
use isobar_model::role::Role;
use isobar_model::user::{ApiKey, ApiKeyInput, NewUser, User};
use isobar_model::user_input::{UserInput, role_in};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Raw, Time};
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const USERS_SORTED_BY: &[&str] = isobar_hub::sortable::USERS;

pub(crate) async fn user_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list_with_after(USERS_SORTED_BY));
    let (tree, list) = query.end(asked)?;
    call.page(call.hub().user_list(call.caller()?, tree, list).await?, |_| 0, UserJson::from).await
}

pub(crate) async fn user_create(call: &mut Call) -> Answer {
    let (role, body) = call.json_beside(|body| (role_in(body), NewUser::read(body, false))).await;
    let new = after(call.hub().allow_user_of(call.caller()?, role), body).await?;
    let user = call.hub().user_create(call.caller()?, new).await?;
    response::created(&UserJson::from(user))
}

pub(crate) async fn user_fetch(call: &mut Call) -> Answer {
    let user = call.hub().user_fetch(call.caller()?, call.id("id", "user")?).await?;
    response::ok(&UserJson::from(user))
}

pub(crate) async fn user_update(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let (role, body) = call.json_beside(|body| (role_in(body), UserInput::read(body))).await;
    let input = after(call.hub().allow_user_update(call.caller()?, id, role), body).await?;
    let user = call.hub().user_update(call.caller()?, id, input, call.client.address).await?;
    response::ok(&UserJson::from(user))
}

pub(crate) async fn user_delete(call: &mut Call) -> Answer {
    call.hub().user_delete(call.caller()?, call.id("id", "user")?).await?;
    response::no_content()
}

pub(crate) async fn api_key_list(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let mut query = call.query();
    let page = query.page();
    let allowed = call.hub().allow_user(call.caller()?, id, Action::ApiKeyManage);
    let page = after(allowed, query.end(page)).await?;
    call.page(call.hub().api_key_list(call.caller()?, id, page).await?, |_| 0, ApiKeyJson::from).await
}

pub(crate) async fn api_key_create(call: &mut Call) -> Answer {
    let id: UserId = call.id("id", "user")?;
    let now = call.hub().clock().now();
    let (role, body) = call.json_beside(move |body| (role_in(body), ApiKeyInput::read(body, now))).await;
    let input = after(call.hub().allow_api_key(call.caller()?, id, role), body).await?;
    let (key, secret) = call.hub().api_key_create(call.caller()?, id, input).await?;
    response::created(&NewApiKeyJson {
        id: Id(key.id.0),
        name: key.name,
        key: secret.reveal(),
        role: key.role,
        created_at: Time(key.created_at),
        expires_at: key.expires_at.map(Time),
    })
}

pub(crate) async fn api_key_delete(call: &mut Call) -> Answer {
    let (id, key): (UserId, ApiKeyId) = (call.id("id", "user")?, call.id("keyId", "API key")?);
    call.hub().api_key_delete(call.caller()?, id, key).await?;
    response::no_content()
}

/// A user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = User)]
pub(crate) struct UserJson {
    id: Id,
    username: String,
    email: String,
    role: Role,
    tos_hash: Option<String>,
    first_name: String,
    last_name: String,
    company: String,
    job_title: Option<String>,
    language: Option<String>,
    created_at: Time,
    updated_at: Time,
    last_active: Option<Time>,
    preferences: Raw,
    image_url: String,
    organization_name: String,
    organization_id: Id,
    disabled: bool,
}

impl From<User> for UserJson {
    fn from(user: User) -> Self {
        let preferences = Preferences::of(user.preferences.as_ref()).json();
        Self {
            image_url: format!("/users/{}/image.png", user.id),
            id: Id(user.id.0),
            username: user.username,
            email: user.email,
            role: user.role,
            tos_hash: user.tos_hash,
            first_name: user.first_name,
            last_name: user.last_name,
            company: user.company,
            job_title: user.job_title,
            language: user.language,
            created_at: Time(user.created_at),
            updated_at: Time(user.updated_at),
            last_active: user.last_active.map(Time),
            preferences: Raw(preferences),
            organization_name: user.organization_name,
            organization_id: Id(user.organization.0),
            disabled: user.disabled,
        }
    }
}

/// An API key, without the key.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyJson {
    id: Id,
    name: String,
    /// The highest role that it gives: the lower of it and its user's counts; null: its user's.
    role: Option<Role>,
    created_at: Time,
    /// The time from which it is refused; null: it has no end.
    expires_at: Option<Time>,
    last_used_at: Option<Time>,
}

impl From<ApiKey> for ApiKeyJson {
    fn from(key: ApiKey) -> Self {
        Self {
            id: Id(key.id.0),
            name: key.name,
            role: key.role,
            created_at: Time(key.created_at),
            expires_at: key.expires_at.map(Time),
            last_used_at: key.last_used_at.map(Time),
        }
    }
}

/// A new API key, shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewApiKey)]
pub(crate) struct NewApiKeyJson<'a> {
    pub id: Id,
    pub name: String,
    pub key: &'a str,
    /// The highest role that it gives: the lower of it and its user's counts; null: its user's.
    pub role: Option<Role>,
    pub created_at: Time,
    /// The time from which it is refused; null: it has no end.
    pub expires_at: Option<Time>,
}

/// Creates a user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = UserCreation)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct UserCreationJson {
    #[schema(min_length = 1, max_length = 254)]
    username: String,
    /// Left out: the user sets one by a link of an e-mail (`POST /v2/auth/forgot`).
    #[schema(required = false, min_length = 6, max_length = 128)]
    password: String,
    /// Must match password.
    #[schema(required = false, min_length = 6, max_length = 128)]
    password_confirmation: String,
    #[schema(min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    /// At most the caller's own.
    role: Role,
    /// Left out: the caller's own.
    organization_id: Option<Id>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
}

/// Updates a user. What is left out keeps its value.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = UserInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct UserInputJson {
    /// The present username: it cannot be changed.
    #[schema(required = false, min_length = 1, max_length = 254)]
    username: String,
    /// The present address: it cannot be changed.
    #[schema(required = false, min_length = 3, max_length = 254)]
    email: String,
    /// At most the caller's own.
    role: Role,
    #[schema(required = false, min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(required = false, min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    #[schema(max_length = 80)]
    job_title: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    /// Ends the user's other sessions.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password_confirmation: String,
    /// Must be today's password, where callers say it beside a new one of their own; of other users it is not looked at.
    #[schema(required = false, max_length = 1024)]
    current_password: String,
    /// Ends the caller's API keys with a new password of its own; otherwise it is not looked at. Left out, it is false.
    #[schema(required = false)]
    end_api_keys: bool,
    /// Ends the links of dashboards that the caller made with a new password of its own; otherwise it is not looked at.
    /// Left out, it is false.
    #[schema(required = false)]
    end_links: bool,
    /// null: the defaults.
    preferences: Option<PreferencesInputJson>,
    /// Moves the user; within the caller's reach.
    organization_id: Option<Id>,
    /// Ignored: it follows organizationId.
    #[schema(max_length = 80)]
    organization_name: Option<String>,
    /// The reason, for the operator alone.
    #[schema(required = false, min_length = 1, max_length = 300)]
    reason: String,
    /// Refused with every credential; needs an administrator.
    #[schema(required = false)]
    disabled: bool,
}

/// Channels of a user's notifications. A member that is left out stays as it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = PreferencesInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct PreferencesInputJson {
    #[schema(required = false)]
    notifications: KindsInputJson,
}

/// Channels of each kind of notification.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = KindsInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct KindsInputJson {
    #[schema(required = false)]
    account_notifications: ChannelsInputJson,
    /// In the application it always comes.
    #[schema(required = false)]
    system_notification: ChannelsInputJson,
    #[schema(required = false)]
    device_notification: ChannelsInputJson,
}

/// Channels of one kind of notification.
#[derive(ToSchema)]
#[schema(as = ChannelsInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ChannelsInputJson {
    #[schema(required = false)]
    inapp: bool,
    #[schema(required = false)]
    email: bool,
}

/// Makes an API key.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = ApiKeyInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ApiKeyInputJson {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// The highest role that it gives, at most its user's; left out: its user's, whatever that is.
    role: Option<Role>,
    /// The time from which it is refused, in the future; left out: it has no end.
    expires_at: Option<Time>,
}
