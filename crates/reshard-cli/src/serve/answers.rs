//! What is answered to a request: the page, the plan of layouts that were typed, or a refusal.

use crate::args::{Args, Command, Timed};
use crate::failure::Failure;
use crate::page::data::PageData;
use crate::page::page;
use crate::simulate::SimulationRequest;
use clap::Parser;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// The fields of the page that can be wrong, and the flags that they are here.
const FIELDS: [(&str, &str); 4] =
    [("from", "--from"), ("to", "--to"), ("shape", "--shape"), ("strategy", "--strategy")];

/// What is served, to whom.
pub struct Site {
    page: String,
    token: String,
    /// What a browser on this machine calls this server.
    hosts: Vec<String>,
}

/// The answer to layouts that cannot be planned.
#[derive(Serialize)]
struct Wrong {
    error: WrongField,
}

#[derive(Serialize)]
struct WrongField {
    message: String,
    /// The field of the page, and what was typed there.
    field: Option<&'static str>,
    text: Option<String>,
    /// The position of the mistake in it, in characters.
    position: Option<usize>,
}

impl Site {
    pub fn new(timed: &Timed, token: String, at: SocketAddr) -> Result<Self, Failure> {
        let first = match timed.command().is_empty() {
            true => typed(&["16/3", "16/5"]).map_err(|_| Failure::usage("the first layouts are wrong"))?,
            false => SimulationRequest::read(timed, false)?,
        };
        let page = page(&first, Some(&format!("/{token}/plan")))?;
        let port = at.port();
        let hosts = vec![
            at.to_string(),
            format!("localhost:{port}"),
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
        ];
        Ok(Self { page, token, hosts })
    }

    /// The answer to a request. Planning happens beside the thread that listens.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let has_body = !request.body().is_end_stream();
        let (head, _) = request.into_parts();
        let found = self.look(&head.method, &head.headers, has_body, head.uri.path(), head.uri.query());
        let answer = match found {
            Found::Page => reply(StatusCode::OK, "text/html; charset=utf-8", self.page.clone()),
            Found::Refused(status, why) => reply(status, "text/plain; charset=utf-8", why.to_string()),
            Found::Plan(query) => {
                let live = format!("/{}/plan", self.token);
                let planned = tokio::task::spawn_blocking(move || planned(&query, &live)).await;
                let (status, text) = planned.unwrap_or_else(|_| {
                    (StatusCode::INTERNAL_SERVER_ERROR, wrong("planning these layouts failed", None))
                });
                reply(status, "application/json", text)
            }
        };
        Ok(answer)
    }

    /// What is asked for, if it may be.
    fn look(
        &self,
        method: &Method,
        headers: &HeaderMap,
        has_body: bool,
        path: &str,
        query: Option<&str>,
    ) -> Found {
        let refused = |status, why| Found::Refused(status, why);
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        // Another name for this machine, under which a page of a stranger could reach it.
        if !text(header::HOST).is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
        {
            return refused(StatusCode::FORBIDDEN, "this server answers to its own address only\n");
        }
        let own = |origin: &str| {
            origin
                .strip_prefix("http://")
                .is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
        };
        if text(header::ORIGIN).is_some_and(|origin| !own(origin)) {
            return refused(StatusCode::FORBIDDEN, "this server answers to its own page only\n");
        }
        if *method != Method::GET {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood\n");
        }
        if has_body {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here\n");
        }
        let mut words = path.splitn(3, '/').skip(1);
        if !words.next().is_some_and(|token| is_equal(token, &self.token)) {
            return refused(
                StatusCode::NOT_FOUND,
                "there is nothing here; open the whole URL that `reshard serve` printed\n",
            );
        }
        match words.next() {
            Some("") => Found::Page,
            Some("plan") => Found::Plan(query.unwrap_or_default().to_string()),
            _ => refused(StatusCode::NOT_FOUND, "there is nothing here\n"),
        }
    }
}

enum Found {
    Page,
    Plan(String),
    Refused(StatusCode, &'static str),
}

/// Compares in a time that does not tell where two texts differ.
fn is_equal(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The URL is a secret, and no other page may frame this one.
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The request that these words of a command line are.
fn typed(words: &[&str]) -> Result<SimulationRequest, Failure> {
    let args = Args::try_parse_from([&["reshard", "explain", "--html", "-"], words].concat());
    match args
        .map_err(|error| Failure::usage(&crate::failure::in_one_sentence(&error, Some("explain"))))?
        .command
    {
        Command::Explain(explain) => SimulationRequest::read(&explain.timed, false),
        _ => Err(Failure::usage("another command was typed")),
    }
}

/// The plan of the layouts in a query, or what is wrong with them.
fn planned(query: &str, live: &str) -> (StatusCode, String) {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = decoded(value).filter(|value| !value.trim().is_empty());
        if let (Some((_, flag)), Some(value)) = (FIELDS.iter().find(|(field, _)| *field == name), value) {
            fields.push((flag, value));
        }
    }
    let words: Vec<String> = fields.iter().map(|(flag, value)| format!("{flag}={value}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let data = typed(&words).and_then(|request| PageData::new(&request, Some(live)));
    match data {
        Ok(data) => match serde_json::to_string(&data) {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, wrong(&error.to_string(), None)),
        },
        Err(Failure::Usage(sentence) | Failure::Failed(sentence)) => {
            let message = sentence.message();
            let field = FIELDS.iter().find(|(_, flag)| message.starts_with(&format!("{flag}:")));
            let text = field
                .and_then(|(_, flag)| fields.iter().find(|(given, _)| given == flag))
                .map(|(_, text)| text);
            let place = field.zip(text).map(|((name, _), text)| (*name, text.clone(), sentence.position()));
            let message = field.map_or(message, |(_, flag)| message[flag.len() + 1..].trim_start());
            (StatusCode::OK, wrong(message, place))
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, wrong("planning these layouts failed", None)),
    }
}

fn wrong(message: &str, place: Option<(&'static str, String, Option<usize>)>) -> String {
    let (field, text, position) = match place {
        Some((field, text, position)) => (Some(field), Some(text), position),
        None => (None, None, None),
    };
    let wrong = Wrong { error: WrongField { message: message.to_string(), field, text, position } };
    serde_json::to_string(&wrong).unwrap_or_default()
}

/// A value of a query: `%2F` is a slash, `+` a space; `None` if it is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        assert_eq!(decoded("4x4%2F64x64+first%3d1x0").as_deref(), Some("4x4/64x64 first=1x0"));
        for broken in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert!(decoded(broken).is_none_or(|text| text == "\u{1}"), "{broken}");
        }
    }

    #[test]
    fn layouts_are_planned_or_the_mistake_is_placed() {
        let (status, text) = planned("from=4%2F3&to=2%2F5&shape=60", "/t/plan");
        assert!(status == StatusCode::OK && text.contains("\"live\":\"/t/plan\""), "{text}");
        let (_, text) = planned("from=4;3&to=2%2F5", "/t/plan");
        assert!(text.contains("\"field\":\"from\",\"text\":\"4;3\",\"position\":1"), "{text}");
        let (_, text) = planned("from=600%2F3&to=2%2F5", "/t/plan");
        assert!(text.contains("at most 512"), "{text}");
        // Flags cannot be smuggled in.
        let (_, text) = planned("from=4%2F3+--html%3Dx&to=2%2F5", "/t/plan");
        assert!(text.contains("\"field\":\"from\""), "{text}");
    }
}
