//! What is answered to a request: the page, the plan of layouts that were typed, or a refusal.

use crate::args::Timed;
use crate::failure::Failure;
use crate::page::data::PageData;
use crate::page::page;
use crate::simulate::SimulationRequest;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The fields of the page that can be wrong, and the flags that they are here.
const FIELDS: [(&str, &str); 4] =
    [("from", "--from"), ("to", "--to"), ("shape", "--shape"), ("strategy", "--strategy")];

/// Plans that are made at a time: further requests wait, and those whose browser has closed the connection are not begun. One that was
/// begun counts until it ends.
const PLANS: usize = 2;

/// What is served, to whom.
pub struct Site {
    page: String,
    /// What was typed on the command line: the page changes layouts, shape and strategy, all else stays.
    timed: Timed,
    token: String,
    /// What a browser on this machine calls this server.
    hosts: Vec<String>,
    /// It can be reached at any address of this machine.
    anywhere: bool,
    plans: Arc<Semaphore>,
}

/// The answer to layouts that cannot be planned.
#[derive(Serialize)]
struct Mistake {
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
    pub fn new(timed: &Timed, token: String, at: SocketAddr, anywhere: bool) -> Result<Self, Failure> {
        let mut timed = timed.clone();
        if timed.command().is_empty() {
            timed.moved.layouts = ["16/3", "16/5"].map(String::from).to_vec();
        }
        let first = SimulationRequest::read(&timed, false)?;
        let page = page(&first, Some(&format!("/{token}/plan")))?;
        let names = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{}", at.port()));
        let hosts = names.into_iter().chain([at.to_string()]).flat_map(as_called).collect();
        Ok(Self { page, timed, token, hosts, anywhere, plans: Arc::new(Semaphore::new(PLANS)) })
    }

    /// The answer to a request that came to this address of ours. Planning happens beside the thread that listens.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        reached: Option<SocketAddr>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let has_body = !request.body().is_end_stream();
        let (head, _) = request.into_parts();
        let answer = match self.look(&head, has_body, reached) {
            Found::Page => reply(StatusCode::OK, "text/html; charset=utf-8", self.page.clone()),
            Found::Refused(status, why) => reply(status, "text/plain; charset=utf-8", why.to_string()),
            Found::Plan(query) => {
                let site = Arc::clone(&self);
                let turn = Arc::clone(&self.plans).acquire_owned().await;
                let (done, planned) = tokio::sync::oneshot::channel();
                // The runtime's own threads are a panic where the system gives no more.
                let thread = std::thread::Builder::new().name("reshard-plan".into());
                let plan = move || {
                    let planned = site.planned(&query);
                    drop(turn);
                    done.send(planned)
                };
                let (status, text) = match thread.spawn(plan) {
                    Err(error) => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        wrong(
                            &format!("a thread that plans cannot be started: {error}; try again later"),
                            None,
                        ),
                    ),
                    Ok(_) => planned.await.unwrap_or_else(|_| {
                        (StatusCode::INTERNAL_SERVER_ERROR, wrong("planning these layouts failed", None))
                    }),
                };
                reply(status, "application/json", text)
            }
        };
        Ok(answer)
    }

    /// What is asked for, if it may be.
    pub fn look(&self, head: &Parts, has_body: bool, reached: Option<SocketAddr>) -> Found {
        let refused = |status, why| Found::Refused(status, why);
        let own = |host: &str| {
            let reached = reached.filter(|_| self.anywhere).map(|address| as_called(address.to_string()));
            self.hosts.iter().chain(reached.iter().flatten()).any(|own| own.eq_ignore_ascii_case(host))
        };
        // The only header of a name; an empty text if it is no text, or is there twice.
        let only = |name| {
            let mut all = head.headers.get_all(name).iter();
            let first = all.next()?;
            Some(if all.next().is_some() { "" } else { first.to_str().unwrap_or_default() })
        };
        // Another name for this machine, under which a page of a stranger could reach it.
        if !only(header::HOST).is_some_and(own) || head.uri.authority().is_some() {
            return refused(StatusCode::FORBIDDEN, "this server answers to its own address only\n");
        }
        if only(header::ORIGIN).is_some_and(|origin| !origin.strip_prefix("http://").is_some_and(own)) {
            return refused(StatusCode::FORBIDDEN, "this server answers to its own page only\n");
        }
        if head.method != Method::GET {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood\n");
        }
        if has_body {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here\n");
        }
        let (path, query) = (head.uri.path(), head.uri.query());
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

impl Site {
    /// What the fields of a query ask for: all else is as it was typed on the command line.
    pub fn asked(&self, fields: &Fields) -> Timed {
        let mut timed = self.timed.clone();
        timed.moved.layouts = Vec::new();
        timed.moved.from = fields.typed("--from");
        timed.moved.to = fields.typed("--to");
        timed.moved.shape = fields.typed("--shape");
        timed.strategy = fields.typed("--strategy").unwrap_or(timed.strategy);
        timed
    }

    /// The plan of the layouts in a query, or what is wrong with them.
    pub fn planned(&self, query: &str) -> (StatusCode, String) {
        let fields = Fields::of(query);
        let timed = self.asked(&fields);
        let live = format!("/{}/plan", self.token);
        // Flags of some strategies may stand beside another one.
        let data =
            SimulationRequest::read(&timed, true).and_then(|request| PageData::new(&request, Some(&live)));
        match data {
            Ok(data) => match serde_json::to_string(&data) {
                Ok(text) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, wrong(&error.to_string(), None)),
            },
            Err(Failure::Usage(sentence) | Failure::Failed(sentence)) => {
                let message = sentence.message();
                let field = FIELDS.iter().find(|(_, flag)| message.starts_with(&format!("{flag}:")));
                let place =
                    field.and_then(|(name, flag)| Some((*name, fields.typed(flag)?, sentence.position())));
                let message = field.map_or(message, |(_, flag)| message[flag.len() + 1..].trim_start());
                (StatusCode::OK, wrong(message, place))
            }
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, wrong("planning these layouts failed", None)),
        }
    }
}

/// What a request gets: the page, the plan of a query, or a refusal.
pub enum Found {
    Page,
    Plan(String),
    Refused(StatusCode, &'static str),
}

/// What was typed into the fields of the page, each with its flag.
pub struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// The fields of a query. Those that are empty, unknown or no text are left out.
    pub fn of(query: &str) -> Self {
        let typed = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let (_, flag) = FIELDS.iter().find(|(field, _)| *field == name)?;
            Some((*flag, decoded(value).filter(|value| !value.trim().is_empty())?))
        };
        Self(query.split('&').filter_map(typed).collect())
    }

    /// What was typed, the first time if there are several.
    fn typed(&self, flag: &str) -> Option<String> {
        self.0.iter().find(|(given, _)| *given == flag).map(|(_, text)| text.clone())
    }
}

/// What a browser calls the server at `HOST:PORT`: it leaves out the port of HTTP.
fn as_called(at: String) -> Vec<String> {
    let without = at.strip_suffix(":80").map(String::from);
    [at].into_iter().chain(without).collect()
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

fn wrong(message: &str, place: Option<(&'static str, String, Option<usize>)>) -> String {
    let (field, text, position) = match place {
        Some((field, text, position)) => (Some(field), Some(text), position),
        None => (None, None, None),
    };
    let wrong = Mistake { error: WrongField { message: message.to_string(), field, text, position } };
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
                let (&[high, low], after) = rest.split_first_chunk()?;
                rest = after;
                // Two digits and nothing else: `from_str_radix` would take a sign.
                let digit = |digit: u8| char::from(digit).to_digit(16);
                (16 * digit(high)? + digit(low)?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn queries_are_decoded() {
        assert_eq!(decoded("4x4%2F64x64+first%3d1x0").as_deref(), Some("4x4/64x64 first=1x0"));
        for broken in ["%", "%2", "%zz", "%ff", "%+1", "%-1", "%é"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    fn site(words: &[&str]) -> Site {
        let args = Args::try_parse_from([&["reshard", "serve"], words].concat()).unwrap();
        let Command::Serve(serve) = args.command else { panic!("another command") };
        Site::new(&serve.timed, "t".to_string(), "127.0.0.1:1".parse().unwrap(), false).unwrap()
    }

    #[test]
    fn the_port_of_http_is_left_out() {
        let timed = site(&[]).timed;
        let found = |at: &str, anywhere, host: &str| {
            let site = Site::new(&timed, "t".into(), at.parse().unwrap(), anywhere).unwrap();
            let request = Request::get("/t/").header("Host", host).header("Origin", format!("http://{host}"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            matches!(site.look(&head, false, Some("10.0.0.7:80".parse().unwrap())), Found::Page)
        };
        for host in ["10.0.0.7", "10.0.0.7:80", "localhost", "[::1]:80"] {
            assert!(found("10.0.0.7:80", false, host) && found("127.0.0.1:80", true, host), "{host}");
        }
        assert!(found("[fd00::80]:80", false, "[fd00::80]"));
        for host in ["10.0.0.7", "10.0.0.7:80", "localhost", "127.0.0.1:80"] {
            assert!(!found("127.0.0.1:8080", false, host), "{host}");
        }
    }

    #[test]
    fn layouts_are_planned_or_the_mistake_is_placed() {
        let site = site(&[]);
        let (status, text) = site.planned("from=4%2F3&to=2%2F5&shape=60");
        assert!(status == StatusCode::OK && text.contains("\"live\":\"/t/plan\""), "{text}");
        let (_, text) = site.planned("from=4;3&to=2%2F5");
        assert!(text.contains("\"field\":\"from\",\"text\":\"4;3\",\"position\":1"), "{text}");
        let (_, text) = site.planned("from=600%2F3&to=2%2F5");
        assert!(text.contains("at most 512"), "{text}");
        let (_, text) = site.planned("from=150%2F1&to=149%2F1&shape=22350&strategy=async");
        assert!(text.contains("22350 messages are too many for async"), "{text}");
        let (_, text) = site.planned("from=4%2F3+--html%3Dx&to=2%2F5");
        assert!(text.contains("\"field\":\"from\""), "{text}");
    }

    #[test]
    fn what_the_page_cannot_change_stays() {
        let words = [
            "2x2/3x3",
            "3x2/2x5",
            "--shape",
            "25x19",
            "--transpose",
            "--ports",
            "2",
            "--half-duplex",
            "--alpha",
            "3us",
        ];
        let site = site(&words);
        let (_, text) = site.planned("from=2x2%2F3x3&to=3x2%2F2x5&shape=25x19&strategy=optimal");
        let start = site.page.find("id=\"data\">").unwrap() + 10;
        let given = &site.page[start..][..site.page[start..].find("</script>").unwrap()];
        let [mut given, mut again] =
            [given, &text].map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        // The layouts are flags now.
        for data in [&mut given, &mut again] {
            assert!(data["command"].take().as_array().unwrap().iter().any(|word| word == "--transpose"));
        }
        assert_eq!(given, again);
    }
}
