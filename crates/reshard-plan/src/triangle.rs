//! Triangles of a matrix: the elements on one side of a diagonal, as the BLAS and NumPy's `triu` and `tril` mean them.

/// Which part of a matrix moves, in the source's rows and columns of the window: all on one side of a diagonal, which
/// belongs to it. Diagonal 0 is the main one, 1 the one above it, -1 the one below it.
///
/// ```
/// use reshard_plan::Triangle;
/// assert!(Triangle::UPPER.contains(3, 3) && !Triangle::STRICTLY_UPPER.contains(3, 3));
/// // A lower Hessenberg matrix: the lower triangle and one diagonal more.
/// let part = Triangle::lower(1);
/// assert!(part.contains(3, 4) && !part.contains(3, 5));
/// assert_eq!(part.elems(4, 4), 4 + 4 + 3 + 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangle {
    upper: bool,
    /// Column minus row of the triangle's diagonal.
    diagonal: i64,
}

impl Triangle {
    /// Elements on and above the main diagonal: row <= column.
    pub const UPPER: Self = Self::upper(0);
    /// Elements above the main diagonal alone: what a unit upper triangular matrix stores.
    pub const STRICTLY_UPPER: Self = Self::upper(1);
    /// Elements on and below the main diagonal: row >= column.
    pub const LOWER: Self = Self::lower(0);
    /// Elements below the main diagonal alone: what a unit lower triangular matrix stores.
    pub const STRICTLY_LOWER: Self = Self::lower(-1);

    /// Elements on and above a diagonal: column - row >= diagonal.
    pub const fn upper(diagonal: i64) -> Self {
        Self { upper: true, diagonal }
    }

    /// Elements on and below a diagonal: column - row <= diagonal.
    pub const fn lower(diagonal: i64) -> Self {
        Self { upper: false, diagonal }
    }

    /// True if the triangle is on and above its diagonal, false if it is on and below.
    pub fn is_upper(self) -> bool {
        self.upper
    }

    /// Column minus row of the diagonal where the triangle ends.
    pub fn diagonal(self) -> i64 {
        self.diagonal
    }

    /// True if an element of the source's window belongs to the triangle.
    pub fn contains(self, row: u64, column: u64) -> bool {
        let (above, diagonal) = (i128::from(column) - i128::from(row), i128::from(self.diagonal));
        if self.upper { above >= diagonal } else { above <= diagonal }
    }

    /// Number of elements of a window with these rows and columns that belong to the triangle. Saturates at 2^64 - 1.
    pub fn elems(self, rows: u64, columns: u64) -> u64 {
        if !self.upper {
            return self.transposed().elems(columns, rows);
        }
        // Column c has min(c + 1 - diagonal, rows) elements, if that is positive: a sum of min(x, rows) for x in a row.
        let rows = u128::from(rows);
        let up_to = |end: i128| {
            let end = u128::try_from(end).unwrap_or(0);
            let growing = end.min(rows);
            (growing * (growing + 1) / 2).saturating_add((end - growing).saturating_mul(rows))
        };
        let diagonal = i128::from(self.diagonal);
        let elems = up_to(i128::from(columns) - diagonal) - up_to(-diagonal);
        u64::try_from(elems).unwrap_or(u64::MAX)
    }

    /// The triangle that has these elements, seen from a window that begins so many rows further down; columns further right
    /// count as negative rows.
    pub(crate) fn shifted(self, rows: i64) -> Self {
        Self { diagonal: self.diagonal.saturating_add(rows), ..self }
    }

    /// The triangle of the transposed matrix that has these elements.
    pub(crate) fn transposed(self) -> Self {
        // The diagonal of least number has no opposite, but nothing lies beyond the one before it either.
        Self { upper: !self.upper, diagonal: self.diagonal.saturating_neg() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every small window and diagonal with a count element by element.
    #[test]
    fn elements_are_counted_and_turned_as_one_by_one() {
        for (rows, columns) in (0..7).flat_map(|rows| (0..7).map(move |columns| (rows, columns))) {
            for diagonal in -9..=9 {
                for part in [Triangle::upper(diagonal), Triangle::lower(diagonal)] {
                    let mut count = 0;
                    for (row, column) in
                        (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
                    {
                        let inside = part.contains(row, column);
                        count += u64::from(inside);
                        assert_eq!(
                            part.transposed().contains(column, row),
                            inside,
                            "{part:?} {row} {column}"
                        );
                    }
                    assert_eq!(part.elems(rows, columns), count, "{part:?} of {rows}x{columns}");
                }
            }
        }
        let far = 1 << 62;
        assert_eq!(Triangle::UPPER.elems(1 << 31, 1 << 31), (1 << 30) * ((1 << 31) + 1));
        assert_eq!(Triangle::upper(i64::MIN).elems(far, 1), far);
        assert_eq!(Triangle::lower(i64::MIN).elems(far, 1), 0);
        assert_eq!(Triangle::upper(i64::MAX).elems(1, far), 0);
        assert_eq!(Triangle::lower(i64::MAX).elems(1, far), far);
    }
}
