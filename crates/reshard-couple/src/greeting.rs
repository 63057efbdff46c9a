//! How two processes begin a connection: each proves that it knows the secret before the other believes anything it says.
//!
//! ```text
//! consumer                                             producer
//! opening: version, channel, which process, nonce  ->
//!                                                  <-  answer: version, session, nonce
//! proof over both                                  ->
//!                                                  <-  verdict, proof over all three
//! ```
//!
//! All messages have fixed lengths, so that a stranger costs the producer a few hundred bytes and, with the time limit of
//! `io.rs`, a few seconds at most. A data connection proves a key that is derived for the session and the consumer.

use crate::secret::{PROOF_BYTES, Secret, random};
use reshard::Result;

/// The version of everything that goes over connections.
pub const VERSION: u32 = 1;

pub const OPENING_BYTES: usize = 64;
pub const ANSWER_BYTES: usize = 64;
pub const VERDICT_BYTES: usize = 4 + PROOF_BYTES;

const MAGIC: [u8; 8] = *b"RESHARD\n";
const ACCEPTED: u32 = 0;
const WRONG_PROOF: u32 = 1;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Between the leaders: what is coupled, and which steps there are.
    Control,
    /// Of the elements that go to one process of a consumer.
    Data { consumer: u64, process: u32 },
}

/// A random number of the producer's, new in each job.
pub type SessionId = [u8; 16];

/// The first message of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub version: u32,
    pub channel: Channel,
    pub nonce: [u8; 32],
}

impl Opening {
    pub fn new(channel: Channel) -> Result<Self> {
        Ok(Self { version: VERSION, channel, nonce: random()? })
    }

    pub fn encode(&self) -> [u8; OPENING_BYTES] {
        let (kind, consumer, process) = match self.channel {
            Channel::Control => (0_u32, 0, 0),
            Channel::Data { consumer, process } => (1, consumer, process),
        };
        let mut bytes = [0; OPENING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&consumer.to_le_bytes());
        bytes[24..28].copy_from_slice(&process.to_le_bytes());
        bytes[32..].copy_from_slice(&self.nonce);
        bytes
    }

    fn decode(bytes: &[u8; OPENING_BYTES]) -> std::result::Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("what came is no greeting of reshard".into());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let consumer = u64::from(word(16)) | u64::from(word(20)) << 32;
        let channel = match (word(12), word(28)) {
            (0, 0) => Channel::Control,
            (1, 0) => Channel::Data { consumer, process: word(24) },
            _ => return Err("a connection of an unknown kind was opened".into()),
        };
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&bytes[32..]);
        Ok(Self { version: word(8), channel, nonce })
    }
}

/// The key that a connection proves.
fn key(secret: &Secret, channel: Channel, session: &SessionId) -> Secret {
    match channel {
        Channel::Control => secret.clone(),
        Channel::Data { consumer, .. } => secret.derive(&[&session[..], &consumer.to_le_bytes()].concat()),
    }
}

/// The producer's side of a greeting: fed with one message after the other.
pub struct Greeter {
    session: SessionId,
    secret: Secret,
    opened: Option<(Opening, Vec<u8>)>,
}

/// What the producer does after a message.
pub struct Reply {
    pub send: Vec<u8>,
    pub then: Then,
}

/// What comes after a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Then {
    /// Another message.
    Waits,
    /// The consumer has proved the secret.
    Greeted(Channel),
    /// The connection is closed, for this reason.
    Refused(String),
}

impl Greeter {
    pub fn new(secret: &Secret, session: SessionId) -> Self {
        Self { session, secret: secret.clone(), opened: None }
    }

    /// The bytes of the next message.
    pub fn wants(&self) -> usize {
        if self.opened.is_none() { OPENING_BYTES } else { PROOF_BYTES }
    }

    /// Takes the next message, which has as many bytes as were wanted.
    pub fn take(&mut self, message: &[u8]) -> Result<Reply> {
        let refused = |send: Vec<u8>, why: String| Ok(Reply { send, then: Then::Refused(why) });
        let Some((opening, mut said)) = self.opened.take() else {
            let Ok(bytes) = message.try_into() else {
                return refused(vec![], "a short greeting came".into());
            };
            return match Opening::decode(bytes) {
                Err(why) => refused(vec![], why),
                Ok(opening) => {
                    let answer = self.answer()?;
                    if opening.version != VERSION {
                        let why = format!(
                            "a consumer came with version {} of the protocol; here it is {VERSION}",
                            opening.version
                        );
                        return refused(answer.to_vec(), why);
                    }
                    self.opened = Some((opening, [&bytes[..], &answer].concat()));
                    Ok(Reply { send: answer.to_vec(), then: Then::Waits })
                }
            };
        };
        let key = key(&self.secret, opening.channel, &self.session);
        match message.try_into() {
            Ok(proof) if key.verify("consumer", &said, proof) => {
                said.extend_from_slice(message);
                let verdict = [&ACCEPTED.to_le_bytes()[..], &key.prove("producer", &said)].concat();
                Ok(Reply { send: verdict, then: Then::Greeted(opening.channel) })
            }
            _ => {
                let verdict = [&WRONG_PROOF.to_le_bytes()[..], &[0; PROOF_BYTES]].concat();
                refused(verdict, "a consumer came that does not know the secret".into())
            }
        }
    }

    fn answer(&self) -> Result<[u8; ANSWER_BYTES]> {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.session);
        bytes[32..].copy_from_slice(&random::<32>()?);
        Ok(bytes)
    }
}

/// The consumer's side of a greeting.
pub struct Visitor<'s> {
    secret: &'s Secret,
    opening: Opening,
    said: Vec<u8>,
}

impl<'s> Visitor<'s> {
    pub fn new(secret: &'s Secret, channel: Channel) -> Result<Self> {
        let opening = Opening::new(channel)?;
        Ok(Self { secret, opening, said: opening.encode().to_vec() })
    }

    /// The first message.
    pub fn opening(&self) -> &[u8] {
        &self.said
    }

    /// Takes the producer's answer; returns the session and the proof to be sent. Nothing is proved to another session than the one
    /// expected.
    pub fn prove(
        &mut self,
        answer: &[u8; ANSWER_BYTES],
        expected: Option<&SessionId>,
    ) -> std::result::Result<(SessionId, [u8; PROOF_BYTES]), String> {
        if answer[..8] != MAGIC {
            return Err("who answered there is no producer of reshard".into());
        }
        let version = u32::from_le_bytes([answer[8], answer[9], answer[10], answer[11]]);
        if version != VERSION {
            return Err(format!(
                "the producer has version {version} of the protocol, and this is version {VERSION}; use the same reshard in both jobs"
            ));
        }
        let mut session = [0; 16];
        session.copy_from_slice(&answer[16..32]);
        if expected.is_some_and(|expected| *expected != session) {
            return Err("the producer that answered is another job".into());
        }
        self.said.extend_from_slice(answer);
        let proof = key(self.secret, self.opening.channel, &session).prove("consumer", &self.said);
        self.said.extend_from_slice(&proof);
        Ok((session, proof))
    }

    /// Takes the producer's verdict.
    pub fn believe(
        &self,
        session: &SessionId,
        verdict: &[u8; VERDICT_BYTES],
    ) -> std::result::Result<(), String> {
        if verdict[..4] == WRONG_PROOF.to_le_bytes() {
            return Err("the producer has another secret; give both jobs the same".into());
        }
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(&verdict[4..]);
        let key = key(self.secret, self.opening.channel, session);
        match verdict[..4] == ACCEPTED.to_le_bytes() && key.verify("producer", &self.said, &proof) {
            true => Ok(()),
            false => {
                Err("who answered there does not know the secret: it is not the producer that was meant"
                    .into())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SESSION: SessionId = [7; 16];

    /// Both sides, with what each does to the messages of the other.
    fn greet(
        secrets: [&Secret; 2],
        channel: Channel,
        mut change: impl FnMut(usize, &mut Vec<u8>),
    ) -> (Then, std::result::Result<(), String>) {
        let mut greeter = Greeter::new(secrets[0], SESSION);
        let mut visitor = Visitor::new(secrets[1], channel).unwrap();
        let mut opening = visitor.opening().to_vec();
        change(0, &mut opening);
        let mut reply = greeter.take(&opening).unwrap();
        change(1, &mut reply.send);
        let answer = match reply.send.as_slice().try_into() {
            Ok(answer) => answer,
            Err(_) => return (reply.then, Err("closed".into())),
        };
        let (session, proof) = match visitor.prove(answer, None) {
            Ok(proved) => proved,
            Err(why) => return (reply.then, Err(why)),
        };
        if reply.then != Then::Waits {
            return (reply.then, Err("closed".into()));
        }
        let mut proof = proof.to_vec();
        change(2, &mut proof);
        let mut reply = greeter.take(&proof).unwrap();
        change(3, &mut reply.send);
        (reply.then, visitor.believe(&session, reply.send.as_slice().try_into().unwrap()))
    }

    #[test]
    fn who_knows_the_secret_is_believed() {
        let secret = Secret::random().unwrap();
        for channel in [Channel::Control, Channel::Data { consumer: 1 << 40, process: 3 }] {
            assert_eq!(greet([&secret; 2], channel, |_, _| ()), (Then::Greeted(channel), Ok(())));
        }
        let other = Secret::random().unwrap();
        let (then, said) = greet([&secret, &other], Channel::Control, |_, _| ());
        assert_eq!(then, Then::Refused("a consumer came that does not know the secret".into()));
        let said = said.unwrap_err();
        assert!(said.contains("another secret"), "{said}");
    }

    #[test]
    fn nothing_is_proved_to_another_session_than_the_one_expected() {
        let secret = Secret::random().unwrap();
        for (expected, is_same) in [(SESSION, true), ([8; 16], false)] {
            let mut greeter = Greeter::new(&secret, SESSION);
            let mut visitor = Visitor::new(&secret, Channel::Control).unwrap();
            let answer = greeter.take(visitor.opening()).unwrap().send;
            let proved = visitor.prove(answer.as_slice().try_into().unwrap(), Some(&expected));
            assert_eq!(proved.is_ok(), is_same, "{proved:?}");
        }
    }

    #[test]
    fn no_byte_of_a_greeting_can_be_changed() {
        let secret = Secret::random().unwrap();
        let channel = Channel::Data { consumer: 5, process: 1 };
        for (message, bytes) in
            [OPENING_BYTES, ANSWER_BYTES, PROOF_BYTES, VERDICT_BYTES].into_iter().enumerate()
        {
            for at in 0..bytes {
                let (then, said) = greet([&secret; 2], channel, |number, text| {
                    if number == message {
                        text[at] ^= 4;
                    }
                });
                assert!(said.is_err(), "byte {at} of message {message}");
                // What the producer said last it cannot take back.
                assert!(message == 3 || !matches!(then, Then::Greeted(_)), "byte {at} of message {message}");
            }
        }
    }

    #[test]
    fn a_proof_is_worth_nothing_in_another_greeting() {
        let secret = Secret::random().unwrap();
        let (mut first, mut then) = (None, Then::Waits);
        for _ in 0..2 {
            (then, _) = greet([&secret; 2], Channel::Control, |message, text| {
                if message == 2 {
                    *text = first.get_or_insert_with(|| text.clone()).clone();
                }
            });
        }
        assert!(matches!(then, Then::Refused(_)));
    }

    #[test]
    fn versions_are_named_on_both_sides() {
        let secret = Secret::random().unwrap();
        let (then, _) = greet([&secret; 2], Channel::Control, |message, text| {
            if message == 0 {
                text[8] = 9;
            }
        });
        assert!(
            matches!(&then, Then::Refused(why) if why.contains("version 9") && why.contains("here it is 1"))
        );
        let (_, said) = greet([&secret; 2], Channel::Control, |message, text| {
            if message == 1 {
                text[8] = 9;
            }
        });
        let said = said.unwrap_err();
        assert!(said.contains("version 9"), "{said}");
    }
}
