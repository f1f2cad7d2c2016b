//! The outcome of a call for its design: a response, or the reason for its absence; and the time of the next try of a call
//! that failed.

use isobar_model::json::{RawJson, write_string};
use isobar_model::time::Timestamp;
use isobar_outlets::calls::{CallAnswer, CallError};

/// Retries of a failed call.
const RETRIES_MAX: u32 = 5;
/// The first pause before a call is tried again, in milliseconds; each further one is four times as long.
const RETRY_MILLIS: i64 = 1_000;

/// Returns the answer for the design: true if there was a response, and the payload; or `None` if the call is retried.
pub(super) fn answer_of(made: std::result::Result<CallAnswer, CallError>, attempts: u32) -> Option<(bool, RawJson)> {
    let is_last = attempts >= RETRIES_MAX;
    match made {
        Ok(answer) if answer.status < 500 && answer.status != 429 => Some((true, response_of(&answer))),
        Ok(answer) => {
            is_last.then(|| (false, failure_of(&format!("the answer was {}", answer.status), Some(answer.status))))
        }
        Err(CallError::Failed(why)) => is_last.then(|| (false, failure_of(&why, None))),
        Err(CallError::Refused(why)) => Some((false, failure_of(&why, None))),
    }
}

/// Returns the time of the next try: later each time, and spread by chance.
pub(super) fn retry_at(now: Timestamp, attempts: u32, chance: u8) -> Timestamp {
    let pause = RETRY_MILLIS << (2 * attempts.min(RETRIES_MAX));
    Timestamp::from_millis(now.millis() + pause * (192 + i64::from(chance) / 2) / 256)
}

/// Returns the payload of a response: its body as JSON if it is JSON, else as text.
fn response_of(answer: &CallAnswer) -> RawJson {
    let mut headers: Vec<(&str, String)> = Vec::new();
    for (name, value) in &answer.headers {
        match headers.iter_mut().find(|(present, _)| present == name) {
            Some((_, values)) => values.extend([", ", value.as_str()]),
            None => headers.push((name, value.clone())),
        }
    }
    let body = RawJson::check(answer.body.clone()).ok();
    let as_json = body.and_then(|body| response_json(answer.status, &headers, body.bytes()));
    as_json.unwrap_or_else(|| {
        let mut text = Vec::new();
        write_string(&String::from_utf8_lossy(&answer.body), &mut text);
        response_json(answer.status, &headers, &text).unwrap_or_else(|| failure_of("the answer cannot be told", None))
    })
}

fn response_json(status: u16, headers: &[(&str, String)], body: &[u8]) -> Option<RawJson> {
    let mut out = format!(r#"{{"status":{status},"headers":{{"#).into_bytes();
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(name, &mut out);
        out.push(b':');
        write_string(value, &mut out);
    }
    out.extend_from_slice(b"},\"body\":");
    out.extend_from_slice(body);
    out.push(b'}');
    // The nesting of the body may exceed the limit by one level now.
    RawJson::check(out.into()).ok()
}

fn failure_of(message: &str, status: Option<u16>) -> RawJson {
    let mut out = br#"{"message":"#.to_vec();
    write_string(message, &mut out);
    if let Some(status) = status {
        out.extend_from_slice(format!(r#","status":{status}"#).as_bytes());
    }
    out.push(b'}');
    RawJson::trusted(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> CallAnswer {
        let headers = [("a", "1"), ("b", "\"2\""), ("a", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        CallAnswer { status, headers: headers.to_vec(), body: body.to_owned().into() }
    }

    #[test]
    fn response_reaches_the_design_as_json_or_text() {
        let told = |body: &str| response_of(&answer(201, body)).text().to_owned();
        let head = r#"{"status":201,"headers":{"a":"1, 3","b":"\"2\""},"body":"#;
        assert_eq!(told(r#"{"x": 1.50}"#), format!(r#"{head}{{"x": 1.50}}}}"#));
        assert_eq!(told("no \"json\""), format!(r#"{head}"no \"json\""}}"#));
        assert_eq!(told(""), format!(r#"{head}""}}"#));
        let deep = "[".repeat(64) + &"]".repeat(64);
        assert!(RawJson::check(deep.clone().into()).is_ok());
        assert_eq!(told(&deep), format!(r#"{head}"{deep}"}}"#));
    }

    #[test]
    fn transient_failure_is_retried_and_others_are_reported() {
        let failed = || Err(CallError::Failed("no connection".to_owned()));
        for status in [429, 500, 503] {
            assert!(answer_of(Ok(answer(status, "")), 0).is_none());
            let told = format!(r#"{{"message":"the answer was {status}","status":{status}}}"#);
            assert_eq!(answer_of(Ok(answer(status, "")), RETRIES_MAX).unwrap().1.text(), told);
        }
        for status in [200, 302, 404] {
            assert!(answer_of(Ok(answer(status, "")), 0).unwrap().0);
        }
        assert!(answer_of(failed(), RETRIES_MAX - 1).is_none());
        assert_eq!(answer_of(failed(), RETRIES_MAX).unwrap().1.text(), r#"{"message":"no connection"}"#);
        assert!(!answer_of(Err(CallError::Refused("no".to_owned())), 0).unwrap().0);
    }

    #[test]
    fn pauses_grow_and_differ() {
        let pause = |attempts, chance| retry_at(Timestamp::from_millis(0), attempts, chance).millis();
        assert_eq!((pause(0, 0), pause(0, 128), pause(1, 128), pause(4, 128)), (750, 1_000, 4_000, 256_000));
        assert!(pause(0, 255) < 1_250);
    }
}
