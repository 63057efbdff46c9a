//! Moves: what is asked for.

use crate::error::{Error, Result, counted};
use crate::layout::Layout;
use crate::problem::{Problem, Window};
use crate::triangle::Triangle;

/// One array to be moved, and how.
///
/// ```
/// use reshard_plan::{Move, Plan, Triangle};
/// let moving = Move::of::<f64>("2x2/64x64 of 300x300".parse()?, "4x1/32x50 of 300x300".parse()?)?;
/// let plan = Plan::new(vec![moving.only(Triangle::UPPER)?])?;
/// assert_eq!((plan.arrays()[0].sources().len(), plan.arrays()[0].targets().len()), (4, 4));
/// assert_eq!(plan.bytes(), 8 * 300 * 301 / 2);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    problem: Problem,
    from: Layout,
    to: Layout,
    elem_bytes: u64,
    triangle: Option<Triangle>,
}

impl Move {
    /// Moves all of one array into all of another of equal shape, elements of type `T`.
    ///
    /// ```
    /// use reshard_plan::Move;
    /// let moving = Move::of::<f32>("2x2/64x64 of 300x300".parse()?, "4x1/32x50 of 300x300".parse()?)?;
    /// assert_eq!(moving.elem_bytes(), 4);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn of<T>(from: Layout, to: Layout) -> Result<Self> {
        let problem = Problem::new(from.distribution().clone(), to.distribution().clone())?;
        Self { problem, from, to, elem_bytes: 0, triangle: None }.of_bytes(size_of::<T>() as u64)
    }

    /// Moves a window of one array into a window of another, axes perhaps permuted, elements of type `T`.
    ///
    /// ```
    /// use reshard_plan::{Move, Window};
    /// // All of a matrix into the upper left of another, transposed.
    /// let window = Window::of(&[300, 200]).permuted(&[1, 0]);
    /// let moving = Move::windowed::<f32>("2x2/64x64 of 300x200".parse()?, "4/50 of 999".parse()?, window.clone());
    /// assert!(moving.is_err()); // a matrix into a vector
    /// let moving = Move::windowed::<f32>("2x2/64x64 of 300x200".parse()?, "4x1/50x50 of 250x400".parse()?, window)?;
    /// assert_eq!(moving.problem().elems(), 300 * 200);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn windowed<T>(from: Layout, to: Layout, window: Window) -> Result<Self> {
        let problem = Problem::windowed(from.distribution().clone(), to.distribution().clone(), window)?;
        Self { problem, from, to, elem_bytes: 0, triangle: None }.of_bytes(size_of::<T>() as u64)
    }

    /// Sets the bytes of an element: for elements whose type is known only at run time.
    pub fn of_bytes(mut self, elem_bytes: u64) -> Result<Self> {
        if elem_bytes == 0 || elem_bytes > 1 << 20 {
            return Err(Error::mismatch(format!(
                "elements of {} were given; an element has at least 1 byte and at most 2^20",
                counted(elem_bytes, "byte")
            )));
        }
        self.elem_bytes = elem_bytes;
        Ok(self)
    }

    /// Moves only a triangle of a matrix; the rest of the destination stays as it is.
    pub fn only(mut self, triangle: Triangle) -> Result<Self> {
        if self.problem.shape().len() != 2 {
            return Err(Error::mismatch(format!(
                "a triangle of an array of {} was asked for; only matrices have triangles",
                counted(self.problem.shape().len(), "dimension")
            )));
        }
        self.triangle = Some(triangle);
        Ok(self)
    }

    /// The source, the destination and the window, without addresses.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The source's layout.
    pub fn from(&self) -> &Layout {
        &self.from
    }

    /// The destination's layout.
    pub fn to(&self) -> &Layout {
        &self.to
    }

    /// Bytes in an element.
    pub fn elem_bytes(&self) -> u64 {
        self.elem_bytes
    }

    /// The part that moves, if not all.
    pub fn triangle(&self) -> Option<Triangle> {
        self.triangle
    }

    /// A move between the same layouts of elements of the same size, for another window and triangle.
    pub(super) fn with_problem(&self, problem: Problem, triangle: Option<Triangle>) -> Self {
        Self { problem, triangle, ..self.clone() }
    }
}
