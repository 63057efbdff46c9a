//! The closed form: the step of any message of a block-cyclic redistribution, by a few integer operations.
//!
//! The communication grid of a block-cyclic pair is a small graph blown up. Its edges are the classes `k` in
//! `0..classes`; class `k` joins row type `k mod row_types` with column type `k mod column_types`; and every edge
//! stands for all pairs of `row_copies` copies of its row with `column_copies` copies of its column. So a rule
//! `step(k, alpha, beta)` that is injective on every row `(k mod row_types, alpha)` and on every column
//! `(k mod column_types, beta)` schedules the whole redistribution, and each rank evaluates it for its own messages
//! alone. This rule needs exactly as many steps as the busiest process has messages, and no schedule has fewer.
//!
//! The rule (for rows busier than columns; otherwise the roles are swapped) has the form
//! `step = layer * column_copies + (twist + beta) mod column_copies`, with
//!
//! - layers injective on every row, for each `alpha`: then so are steps, whatever the twist;
//! - at most `column_copies` pairs `(k, alpha)` of one column type in a layer, with different twists: then steps are
//!   injective on every column.
//!
//! Case 1 takes evenly spaced layers, shifted by `alpha`. Case 2, where a column has more classes than fit evenly, takes
//! layers of consecutive classes and shifts them inside nodes of a Stern-Brocot tree, splitting a node until a cyclic
//! window of its layers cannot hold too many classes of one column. `docs/schedules.md` has the proofs.

use crate::axis::{gcd, inverse};

/// The colouring rule of one blown-up quotient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    /// True if rows and columns are exchanged, so that rows are the busier side.
    swapped: bool,
    classes: u64,
    row_types: u64,
    column_types: u64,
    row_copies: u64,
    column_copies: u64,
    /// The most classes of one row, and of one column.
    row_degree: u64,
    column_degree: u64,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Evenly spaced layers.
    Even { whole: u64, rest: u64, rest_copies: u64 },
    /// A tree of nodes for each of `roots` equal groups of layers, the first node being the root.
    Tree { roots_layers: u64, nodes: Vec<Node> },
}

/// A group of consecutive layers inside which the copies are shifted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    /// First layer, counted from the beginning of the root.
    offset: u64,
    layers: u64,
    /// Copies at and past this are handled here, `whole` at a time.
    rest: u64,
    whole: u64,
    rest_copies: u64,
    /// The children for copies below `rest`: none (a leaf), or two nodes of fewer layers.
    children: Option<(usize, usize)>,
}

impl Core {
    /// The rule for the given numbers of classes, types and copies, all at least 1.
    pub fn new(classes: u64, row_types: u64, column_types: u64, row_copies: u64, column_copies: u64) -> Self {
        let degrees = (classes.div_ceil(row_types), classes.div_ceil(column_types));
        let swapped = column_copies * degrees.0 < row_copies * degrees.1;
        let (row_types, column_types, row_copies, column_copies, row_degree, column_degree) = if swapped {
            (column_types, row_types, column_copies, row_copies, degrees.1, degrees.0)
        } else {
            (row_types, column_types, row_copies, column_copies, degrees.0, degrees.1)
        };
        let rule = if column_types * column_degree <= row_types * row_degree {
            let whole = row_copies / row_degree;
            let rest_copies = column_copies - whole * column_degree;
            Rule::Even { whole, rest: row_copies % row_degree, rest_copies }
        } else {
            let roots = gcd(column_degree, row_degree);
            let mut tree = Tree { row_types, column_types, nodes: Vec::new() };
            tree.grow(0, column_degree / roots, row_degree / roots, row_copies, column_copies);
            Rule::Tree { roots_layers: row_degree / roots, nodes: tree.nodes }
        };
        Self {
            swapped,
            classes,
            row_types,
            column_types,
            row_copies,
            column_copies,
            row_degree,
            column_degree,
            rule,
        }
    }

    /// Number of steps: as many as the busiest row or column has messages.
    pub fn steps(&self) -> u64 {
        self.column_copies * self.row_degree
    }

    /// The step of the message of class `k` from row copy `alpha` to column copy `beta`.
    #[inline]
    pub fn step(&self, k: u64, alpha: u64, beta: u64) -> u64 {
        debug_assert!(k < self.classes);
        let (alpha, beta) = if self.swapped { (beta, alpha) } else { (alpha, beta) };
        let (layer, twist) = self.layer_and_twist(k, alpha);
        layer * self.column_copies + (twist + beta) % self.column_copies
    }

    /// The steps of one sender's messages (`of_row`) or one receiver's, given which copy it is.
    pub fn line(&self, copy: u64, of_row: bool) -> ProcessSteps<'_> {
        ProcessSteps { core: self, copy, of_row, class: u64::MAX, base: 0, twist: 0 }
    }

    fn layer_and_twist(&self, k: u64, alpha: u64) -> (u64, u64) {
        match &self.rule {
            Rule::Even { whole, rest, rest_copies } => {
                let layers = self.row_degree;
                let place = k / self.column_types;
                let shifted = k * layers / (self.column_types * self.column_degree) + alpha;
                let twist = if alpha < *rest {
                    (place + if shifted < layers { self.column_degree } else { 0 }) % rest_copies
                } else {
                    rest_copies + place * whole + (alpha - rest) / layers
                };
                (shifted % layers, twist)
            }
            Rule::Tree { roots_layers, nodes } => {
                let layer = k / self.row_types;
                let root = layer / roots_layers * roots_layers;
                let mut node = &nodes[0];
                loop {
                    let offset = root + node.offset;
                    let shifted = layer - offset + alpha;
                    // Index of k among the classes of its column that are in this node.
                    let first_class = self.row_types * offset;
                    let place = (k - first_class) / self.column_types;
                    if alpha >= node.rest {
                        let twist = node.rest_copies + place * node.whole + (alpha - node.rest) / node.layers;
                        return (offset + shifted % node.layers, twist);
                    }
                    let Some((left, right)) = node.children else {
                        let end_class = (first_class + self.row_types * node.layers).min(self.classes);
                        let first_of_column = first_class + (k - first_class) % self.column_types;
                        let of_column = (end_class - first_of_column).div_ceil(self.column_types);
                        let wrap = if shifted < node.layers { of_column } else { 0 };
                        return (offset + shifted % node.layers, (place + wrap) % node.rest_copies);
                    };
                    node = if layer < root + nodes[right].offset { &nodes[left] } else { &nodes[right] };
                }
            }
        }
    }
}

/// The steps of one process, class by class. Where the rule shifts by this process's copy, all messages of a class
/// have one layer and one twist, and each step is an addition.
pub(crate) struct ProcessSteps<'a> {
    core: &'a Core,
    copy: u64,
    of_row: bool,
    /// The class that `base` and `twist` belong to.
    class: u64,
    base: u64,
    twist: u64,
}

impl ProcessSteps<'_> {
    /// The step of the message of class `k` to or from copy `other` of the other side.
    #[inline]
    pub fn step(&mut self, k: u64, other: u64) -> u64 {
        if self.of_row == self.core.swapped {
            let (alpha, beta) = if self.of_row { (self.copy, other) } else { (other, self.copy) };
            return self.core.step(k, alpha, beta);
        }
        let copies = self.core.column_copies;
        if self.class != k {
            let (layer, twist) = self.core.layer_and_twist(k, self.copy);
            (self.class, self.base, self.twist) = (k, layer * copies, twist % copies);
        }
        let turned = self.twist + other;
        self.base + if turned >= copies { turned - copies } else { turned }
    }
}

/// Builds the nodes of case 2.
struct Tree {
    row_types: u64,
    column_types: u64,
    nodes: Vec<Node>,
}

impl Tree {
    /// Adds a node of `layers` layers in which a column has at most `degree` classes, for `copies` copies. `degree` and
    /// `layers` are coprime. Returns its index.
    fn grow(&mut self, offset: u64, degree: u64, layers: u64, row_copies: u64, column_copies: u64) -> usize {
        let (whole, rest) = (row_copies / layers, row_copies % layers);
        let rest_copies = column_copies - whole * degree;
        let index = self.nodes.len();
        self.nodes.push(Node { offset, layers, rest, whole, rest_copies, children: None });
        if rest == 0 || degree == 1 {
            return index;
        }
        // The Farey parents of layers / degree.
        let left_degree = inverse(layers % degree, degree);
        let left_layers = (left_degree * layers - 1) / degree;
        let (right_degree, right_layers) = (degree - left_degree, layers - left_layers);
        if right_layers * self.row_types >= self.column_types * right_degree {
            return index;
        }
        let left = self.grow(offset, left_degree, left_layers, rest, rest_copies);
        let right = self.grow(offset + left_layers, right_degree, right_layers, rest, rest_copies);
        self.nodes[index].children = Some((left, right));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the colouring is proper: no two messages of a row or of a column in one step, and no step past the end.
    fn check(classes: u64, row_types: u64, column_types: u64, row_copies: u64, column_copies: u64) {
        let core = Core::new(classes, row_types, column_types, row_copies, column_copies);
        let steps = core.steps();
        let most_on_a_row = column_copies * classes.div_ceil(row_types);
        let most_on_a_column = row_copies * classes.div_ceil(column_types);
        assert_eq!(steps, most_on_a_row.max(most_on_a_column));
        let mut rows = vec![false; (row_types * row_copies * steps) as usize];
        let mut columns = vec![false; (column_types * column_copies * steps) as usize];
        for k in 0..classes {
            for alpha in 0..row_copies {
                for beta in 0..column_copies {
                    let step = core.step(k, alpha, beta);
                    let case = (classes, row_types, column_types, row_copies, column_copies);
                    assert!(step < steps, "{case:?}");
                    let row = ((k % row_types) * row_copies + alpha) * steps + step;
                    let column = ((k % column_types) * column_copies + beta) * steps + step;
                    assert!(!std::mem::replace(&mut rows[row as usize], true), "row of {case:?}");
                    assert!(!std::mem::replace(&mut columns[column as usize], true), "column of {case:?}");
                }
            }
        }
    }

    #[test]
    fn every_small_quotient_is_coloured_with_the_fewest_steps() {
        let mut cases = 0;
        for row_types in 1..=7 {
            for column_types in (1..=7).filter(|&c| gcd(row_types, c) == 1) {
                for classes in 1..=24 {
                    for row_copies in 1..=6 {
                        for column_copies in 1..=6 {
                            check(classes, row_types, column_types, row_copies, column_copies);
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(cases, 30_240);
    }

    #[test]
    fn inverses_are_inverse() {
        for m in 1..60 {
            for a in (1..m).filter(|&a| gcd(a, m) == 1) {
                assert_eq!(a * inverse(a, m) % m, 1);
            }
        }
        assert_eq!(inverse(0, 1), 0);
    }
}
