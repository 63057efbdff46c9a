//! The links that a message crosses from node to node.
//!
//! Ports belong to the cost model; a network adds the links between them. Every link carries messages in one
//! direction, at the speed of one port times its capacity.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The most links of a route that is listed.
const MAX_LISTED_HOPS: u64 = 1 << 20;

/// The network between the nodes. Rank k is node k.
///
/// | written | means |
/// |---|---|
/// | `flat` | one switch: only ports are shared |
/// | `ring` | every node is linked with the next and the one before; messages take the shorter way |
/// | `torus`, `torus:4x4x2` | rings in every dimension, crossed one dimension after the other, the last index first |
/// | `fat-tree`, `fat-tree:16:2` | leaf switches of 16 nodes each, whose uplinks carry 16 / 2 messages at full speed |
///
/// ```
/// use reshard_plan::simulate::Network;
/// let torus: Network = "torus:4x4".parse()?;
/// assert_eq!(torus.to_string(), "torus:4x4");
/// assert_eq!(torus.route(0, 10, 16)?.len(), 4); // two along each dimension
/// assert_eq!("flat".parse::<Network>()?.route(0, 10, 16)?, []);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// One switch for all: nothing is shared but the ports.
    #[default]
    Flat,
    /// Each node is linked with its two neighbours.
    Ring,
    /// Rings in every dimension. Without extents: two dimensions, as square as the ranks allow.
    Torus(Vec<u64>),
    /// Leaf switches under a core that never blocks.
    FatTree {
        /// Nodes to a leaf switch.
        leaf: u64,
        /// Number of nodes that share the bandwidth of one uplink: 1 is a full fat tree, 2 one of half the bandwidth.
        taper: u64,
    },
}

/// One direction of one cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The node or leaf switch where it begins; for a link down in a fat tree, the leaf switch where it ends.
    pub at: u64,
    /// The dimension it runs along; 0 in a fat tree.
    pub dim: usize,
    /// Towards higher indices, or up in a fat tree.
    pub up: bool,
}

impl Network {
    /// The links from one node to another in a network of `nodes` nodes, in the order they are crossed; empty if the message
    /// stays on its node or leaf switch.
    pub fn route(&self, from: u64, to: u64, nodes: u64) -> Result<Vec<Link>> {
        let fitted = self.fitted(nodes)?;
        for node in [from, to] {
            if node >= nodes {
                return Err(Error::out_of_range(format!(
                    "node {node} was asked for in a network of {nodes}; nodes count from 0"
                )));
            }
        }
        let hops = fitted.hops(from, to);
        if hops > MAX_LISTED_HOPS {
            return Err(Error::too_large(format!(
                "the way from node {from} to node {to} has {hops} links, and at most {MAX_LISTED_HOPS} are listed"
            )));
        }
        let mut links = Vec::new();
        fitted.walk(from, to, |link| links.push(link));
        Ok(links)
    }

    /// The network with its size fixed.
    pub(super) fn fitted(&self, nodes: u64) -> Result<Fitted> {
        let nodes = nodes.max(1);
        Ok(match self {
            Self::Flat => Fitted::Flat,
            Self::Ring => Fitted::Torus(vec![nodes]),
            Self::Torus(extents) if extents.is_empty() => {
                let side = nodes.isqrt() + u64::from(nodes.isqrt().pow(2) < nodes);
                Fitted::Torus(vec![nodes.div_ceil(side), side])
            }
            Self::Torus(extents) => {
                let size = extents.iter().map(|&extent| u128::from(extent)).fold(1, u128::saturating_mul);
                if size < nodes.into() {
                    return Err(Error::mismatch(format!(
                        "{self} has {size} nodes and the ranks need {nodes}; give a larger torus"
                    )));
                }
                Fitted::Torus(extents.clone())
            }
            &Self::FatTree { leaf, taper } => {
                if leaf == 0 || taper == 0 {
                    return Err(Error::out_of_range(
                        "a fat tree was given with 0 nodes to a leaf or a taper of 0; both must be at least 1",
                    ));
                }
                Fitted::FatTree { leaf, capacity: leaf as f64 / taper as f64 }
            }
        })
    }
}

/// A network of a certain size.
#[derive(Clone, Debug)]
pub(super) enum Fitted {
    Flat,
    Torus(Vec<u64>),
    FatTree { leaf: u64, capacity: f64 },
}

impl Fitted {
    /// Number of messages that a link carries at full speed.
    pub fn capacity(&self) -> f64 {
        match self {
            Self::FatTree { capacity, .. } => *capacity,
            Self::Flat | Self::Torus(_) => 1.0,
        }
    }

    /// Number of links that a message crosses.
    pub fn hops(&self, from: u64, to: u64) -> u64 {
        match self {
            Self::Flat => 0,
            Self::FatTree { leaf, .. } => 2 * u64::from(from / leaf != to / leaf),
            Self::Torus(extents) => {
                let (mut from, mut to, mut hops) = (from, to, 0);
                for &extent in extents.iter().rev() {
                    let apart = (from % extent).abs_diff(to % extent);
                    hops += apart.min(extent - apart);
                    (from, to) = (from / extent, to / extent);
                }
                hops
            }
        }
    }

    /// Calls a function for each link from one node to another.
    pub fn walk(&self, from: u64, to: u64, mut visit: impl FnMut(Link)) {
        match self {
            Self::Flat => {}
            Self::FatTree { leaf, .. } => {
                let (here, there) = (from / leaf, to / leaf);
                if here != there {
                    visit(Link { at: here, dim: 0, up: true });
                    visit(Link { at: there, dim: 0, up: false });
                }
            }
            Self::Torus(extents) => {
                // Nodes count in row-major order: the last dimension has stride 1, and is crossed first.
                let (mut at, mut stride) = (from, 1);
                for (dim, &extent) in extents.iter().enumerate().rev() {
                    let target = to / stride % extent;
                    loop {
                        let index = at / stride % extent;
                        if index == target {
                            break;
                        }
                        let ahead = if target > index { target - index } else { extent - (index - target) };
                        // Both ways equally long: towards higher indices.
                        let up = ahead <= extent - ahead;
                        visit(Link { at, dim, up });
                        let next = match (up, index) {
                            (true, _) => (index + 1) % extent,
                            (false, 0) => extent - 1,
                            (false, _) => index - 1,
                        };
                        at = at - index * stride + next * stride;
                    }
                    stride = stride.saturating_mul(extent);
                }
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat => f.write_str("flat"),
            Self::Ring => f.write_str("ring"),
            Self::Torus(extents) if extents.is_empty() => f.write_str("torus"),
            Self::Torus(extents) => {
                let extents: Vec<_> = extents.iter().map(u64::to_string).collect();
                write!(f, "torus:{}", extents.join("x"))
            }
            Self::FatTree { leaf, taper } => write!(f, "fat-tree:{leaf}:{taper}"),
        }
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::mismatch(format!(
                "the network {text:?} is not known; choose flat, ring, torus, torus:4x4, fat-tree or fat-tree:16:2, with numbers of at least 1"
            ))
        };
        // Extents are at least 1 and reach 2^31, so that their sums and strides stay far from overflow.
        let number = |word: &str| {
            let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            word.parse()
                .ok()
                .filter(|number| digits && (1..=1_u64 << 31).contains(number))
                .ok_or_else(unknown)
        };
        let (name, size) = text.split_once(':').map_or((text, None), |(name, size)| (name, Some(size)));
        match (name, size) {
            ("flat", None) => Ok(Self::Flat),
            ("ring", None) => Ok(Self::Ring),
            ("torus", None) => Ok(Self::Torus(Vec::new())),
            ("torus", Some(size)) => Ok(Self::Torus(size.split('x').map(number).collect::<Result<_>>()?)),
            ("fat-tree", None) => Ok(Self::FatTree { leaf: 16, taper: 2 }),
            ("fat-tree", Some(size)) => {
                let (leaf, taper) = size.split_once(':').unwrap_or((size, "2"));
                Ok(Self::FatTree { leaf: number(leaf)?, taper: number(taper)? })
            }
            _ => Err(unknown()),
        }
    }
}
