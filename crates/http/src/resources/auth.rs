//! Registration, login, refresh, logout.

use axum::http::header::SET_COOKIE;
use axum::http::{HeaderValue, StatusCode};
use isobar_hub::Tokens;
use isobar_model::error::Error;
use isobar_model::json::Json;
use isobar_model::role::Role;
use isobar_model::session::REFRESH_SECONDS;
use isobar_model::user::{Login, NewUser};
use isobar_model::user_input::{ResetInput, read_account_name, role_in};
use serde::Serialize;
use utoipa::ToSchema;

use super::users::UserJson;
use super::values::{Id, Time};
use crate::problem::Problem;
use crate::request::{Call, REFRESH_COOKIE, after, negotiation, origin};
use crate::response::{self, Answer, Response};

pub(crate) async fn user_register(call: &mut Call) -> Answer {
    let joins = |body: &Json<'_>| body.get("organizationId").is_some_and(|named| !matches!(named, Json::Null));
    let read = move |body: &Json<'_>| ((joins(body), role_in(body)), NewUser::read(body, true));
    let ((joins, role), body) = call.json_beside(read).await;
    let new = after(call.hub().allow_registration(&call.credentials(), joins, role), body).await?;
    let user = call.hub().user_register(&call.credentials(), new, call.client.address).await?;
    response::created(&UserJson::from(user))
}

pub(crate) async fn session_login(call: &mut Call) -> Answer {
    let login = call.json(Login::read).await?;
    let tokens = call.hub().session_login(login, call.client.address).await?;
    tokens_reply(call, tokens)
}

pub(crate) async fn session_refresh(call: &mut Call) -> Answer {
    if is_of_another_site(call) {
        call.hub().allow_refresh(&call.credentials()).await?;
        return Err(foreign_page().into());
    }
    let tokens = call.hub().session_refresh(&call.credentials()).await?;
    tokens_reply(call, tokens)
}

pub(crate) async fn session_logout(call: &mut Call) -> Answer {
    if is_of_another_site(call) {
        call.hub().allow_logout(&call.credentials()).await?;
        return Err(foreign_page().into());
    }
    call.hub().session_logout(&call.credentials()).await?;
    with_cookie(response::no_content()?, call, "", 0)
}

/// Returns true if a page of another site sent a user's cookie.
fn is_of_another_site(call: &Call) -> bool {
    let has_cookie = !call.credentials().refresh_cookies.is_empty();
    has_cookie && origin::is_foreign(&call.head, &call.hub().config().public_url, &call.state.settings)
}

fn foreign_page() -> Error {
    Error::Forbidden("a page of another origin may not use the cookie of a session".to_owned())
}

pub(crate) async fn user_verify(call: &mut Call) -> Answer {
    let (hub, nonce) = (call.hub(), call.name("nonce"));
    let place = if call.is_head() { hub.verification_look(nonce).await } else { hub.user_verify(nonce).await };
    match place {
        // A browser would show the JSON refusal: redirect to the console, which explains it.
        Err(Error::Missing(_)) if prefers_page(call) => response::found(&hub.unverified_place()),
        place => response::found(&place?),
    }
}

/// Returns true if the client prefers a page to JSON, as browsers do.
fn prefers_page(call: &Call) -> bool {
    negotiation::preferred(&call.head.headers, &["application/json", "text/html"]) == 1
}

pub(crate) async fn verification_send(call: &mut Call) -> Answer {
    let named = call.query().text("emailOrUsername");
    let name = match named {
        Some(name) => name,
        None => call.json(read_account_name).await?,
    };
    call.hub().verification_send(&name).await?;
    response::no_content()
}

pub(crate) async fn reset_send(call: &mut Call) -> Answer {
    let name = call.json(read_account_name).await?;
    call.hub().reset_send(&name).await?;
    response::no_content()
}

pub(crate) async fn password_reset(call: &mut Call) -> Answer {
    let input = call.json(ResetInput::read).await?;
    call.hub().password_reset(input, call.client.address).await?;
    response::message(StatusCode::OK, "the new password is set")
}

pub(crate) async fn user_current(call: &mut Call) -> Answer {
    let user = call.hub().user_current(call.caller()?).await?;
    response::ok(&UserJson::from(user))
}

fn tokens_reply(call: &Call, tokens: Tokens) -> Answer {
    let view = TokensJson { jwt_token: tokens.jwt, jwt_token_expiry: Time(tokens.jwt_expiry) };
    let response = response::json(StatusCode::CREATED, &view);
    match tokens.refresh {
        Some((secret, _)) => with_cookie(response, call, secret.reveal(), REFRESH_SECONDS),
        None => Ok(response),
    }
}

/// Sets the refresh cookie; an age of 0 deletes it.
fn with_cookie(mut response: Response, call: &Call, value: &str, age_seconds: i64) -> Result<Response, Problem> {
    let secure = if call.hub().config().public_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie =
        format!("{REFRESH_COOKIE}={value}; Max-Age={age_seconds}; Path=/v2/auth; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(cookie).map_err(Error::internal)?;
    cookie.set_sensitive(true);
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// An access token.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tokens)]
pub(crate) struct TokensJson {
    pub jwt_token: String,
    pub jwt_token_expiry: Time,
}

/// Registers a user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = NewUser)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct NewUserJson {
    #[schema(min_length = 1, max_length = 254)]
    username: String,
    #[schema(min_length = 6, max_length = 128)]
    password: String,
    /// Must match password.
    #[schema(min_length = 6, max_length = 128)]
    password_confirmation: String,
    #[schema(min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    /// Any but systemAdmin; with organizationId at most the caller's own.
    role: Role,
    /// Joins this organization, as somebody who may create users there says; left out: founds one.
    organization_id: Option<Id>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
}

/// Logs a user in.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = Login)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct LoginJson {
    #[schema(max_length = 254)]
    username_or_email: String,
    #[schema(max_length = 1024)]
    password: String,
}

/// Names an account.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = AccountName)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct AccountNameJson {
    /// In any case.
    #[schema(min_length = 1, max_length = 254)]
    email_or_username: String,
}

/// Sets a new password.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = ResetInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ResetInputJson {
    /// The resetToken of the link in the e-mail: valid once, for an hour.
    #[schema(min_length = 1, max_length = 256)]
    token: String,
    #[schema(min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(min_length = 6, max_length = 20)]
    password_confirmation: String,
    /// Ends the account's API keys too; left out: they stay.
    #[schema(default = false, required = false)]
    end_api_keys: bool,
    /// Ends the links of dashboards that the account made; left out: they stay.
    #[schema(default = false, required = false)]
    end_links: bool,
}
