//! Shared memory: rows that the tensor cores read as tiles of 16 x 16, and copies that fill them in the background.

use cuda_device::async_copy::{
    cp_async_cg_16, cp_async_cg_zfill_16, cp_async_commit_group, cp_async_wait_group,
};
use cuda_device::shared::DynamicSharedArray;
use cuda_device::thread;
use cuda_device::wmma::{ldmatrix_x4, ldmatrix_x4_trans};

use crate::tensor_core::Fragment;

/// An address in the block's shared memory.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Shared(*mut u8);

impl Shared {
    /// The beginning of the dynamic shared memory, of which the host says at the launch how much there is
    /// (`Shape::shared_bytes`).
    #[inline(always)]
    pub fn dynamic() -> Self {
        Self(DynamicSharedArray::<u8>::get_raw())
    }

    /// The address so many bytes further.
    #[inline(always)]
    pub fn at(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes as usize))
    }

    /// Loads a tile of 16 x 16 elements, as four of 8 x 8: lanes 8i to 8i + 7 give the addresses of the rows of the one
    /// that goes to register i ([`Tiles::tile`]).
    ///
    /// # Safety
    /// All lanes of the warp must call this, with multiples of 16 in memory that no thread is writing to.
    #[inline(always)]
    pub unsafe fn load_tile(self) -> Fragment {
        // SAFETY: the caller's promise.
        unsafe { ldmatrix_x4(self.0.cast()) }
    }

    /// As [`Shared::load_tile`], with each of the four transposed.
    ///
    /// # Safety
    /// The same.
    #[inline(always)]
    pub unsafe fn load_tile_transposed(self) -> Fragment {
        // SAFETY: the caller's promise.
        unsafe { ldmatrix_x4_trans(self.0.cast()) }
    }

    /// Stores 4 bytes.
    ///
    /// # Safety
    /// The address must be a multiple of 4 in memory that the block has and no other thread uses now.
    #[inline(always)]
    pub unsafe fn store(self, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { *self.0.cast() = value };
    }

    /// Loads 16 bytes, as one number, which comes by one instruction.
    ///
    /// # Safety
    /// The address must be a multiple of 16 in memory that the block has and no other thread writes to now.
    #[inline(always)]
    pub unsafe fn load(self) -> u128 {
        // SAFETY: the caller's promise.
        unsafe { *self.0.cast() }
    }

    /// Begins to copy 16 bytes from global memory.
    ///
    /// # Safety
    /// Both addresses must be multiples of 16. The memory behind `self` belongs to the copy until it is waited for.
    #[inline(always)]
    pub unsafe fn copy(self, source: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { cp_async_cg_16(self.0.cast(), source.cast()) };
    }

    /// Begins to copy 16 bytes from global memory if they are `present`, or to store as many zeros.
    ///
    /// # Safety
    /// As for [`Shared::copy`], but nothing is read from a source that is not present.
    #[inline(always)]
    pub unsafe fn copy_or_zero(self, source: *const u8, present: bool) {
        // SAFETY: the caller's promise.
        unsafe { cp_async_cg_zfill_16(self.0.cast(), source, if present { 16 } else { 0 }) };
    }
}

/// Makes one group of the copies that this thread began since the last group.
#[inline(always)]
pub fn end_copies() {
    // SAFETY: waits for nothing, moves nothing.
    unsafe { cp_async_commit_group() };
}

/// Waits until at most the last `PENDING` groups of this thread are under way.
#[inline(always)]
pub fn wait_copies<const PENDING: u32>() {
    // SAFETY: waits.
    unsafe { cp_async_wait_group(PENDING) };
}

/// Where the bytes of rows of `PARTS` times 16 elements of 2 bytes lie in shared memory.
///
/// Tensor cores read 16 bytes of each of 8 rows at a time, which would all be in the same banks if row simply followed
/// row. So 16 bytes change places with others of their row, within 128 bytes (64 where rows are no multiple of 128), by
/// a rule that depends on the row: the 8 then lie in different banks.
pub struct Rows<const PARTS: usize>;

impl<const PARTS: usize> Rows<PARTS> {
    /// Bytes of a row.
    pub const BYTES: u32 = PARTS as u32 * 32;

    /// Bytes from the first row to a column of a row.
    #[inline(always)]
    pub fn offset(row: u32, column_bytes: u32) -> u32 {
        let places = if PARTS.is_multiple_of(4) {
            row % 8
        } else {
            row / 2 % 4
        };
        row * Self::BYTES + (column_bytes ^ (places * 16))
    }
}

/// This lane's share of reading tiles of 16 x 16 elements out of [`Rows`].
#[derive(Clone, Copy)]
pub struct Tiles<const PARTS: usize>([Shared; 4]);

impl<const PARTS: usize> Tiles<PARTS> {
    /// For tiles that are a left factor as they lie there, or, transposed, a right one. The rows begin at a multiple
    /// of 16 bytes.
    #[inline(always)]
    pub fn by_row(rows: Shared, lane: u32) -> Self {
        Self::new(rows, lane % 16, lane / 16)
    }

    /// For tiles that are a right factor with rows and columns exchanged.
    #[inline(always)]
    pub fn by_column(rows: Shared, lane: u32) -> Self {
        Self::new(rows, lane % 8 + lane / 16 * 8, lane / 8 % 2)
    }

    #[inline(always)]
    fn new(rows: Shared, row: u32, half: u32) -> Self {
        let at = |column| rows.at(Rows::<PARTS>::offset(row, column + half * 16));
        Self([at(0), at(32), at(64), at(96)])
    }

    /// Where this lane loads from for the tile that begins at a row, a multiple of 16, and at column `16 * part`.
    #[inline(always)]
    pub fn tile(&self, row: usize, part: usize) -> Shared {
        let further = row as u32 * Rows::<PARTS>::BYTES + part as u32 / 4 * 128;
        self.0[part % 4].at(further)
    }
}

/// Rows of a matrix in global memory, which a block of 128 threads copies to [`Rows`].
#[derive(Clone, Copy)]
pub struct Source<const PARTS: usize> {
    /// Address of this thread's first column of row 0.
    data: *const u8,
    /// Bytes from row to row.
    stride: i64,
    /// The rows from `first` on and before `last` are there, and their first `columns` elements.
    first: i32,
    last: i32,
    columns: u32,
}

impl<const PARTS: usize> Source<PARTS> {
    /// Threads that share a row: each copies 16 bytes of it at a time.
    pub const ACROSS: u32 = if PARTS.is_multiple_of(4) { 8 } else { 4 };
    /// Rows that are copied at a time.
    const DOWN: u32 = 128 / Self::ACROSS;

    /// Of a matrix whose row 0 begins at `data`; `stride` in bytes, a multiple of 16, `columns` a multiple of 8.
    #[inline(always)]
    pub fn new(data: *const u8, stride: i64, [first, last]: [i32; 2], columns: u32) -> Self {
        let column = thread::threadIdx_x() % Self::ACROSS * 16;
        Self {
            data: data.wrapping_add(column as usize),
            stride,
            first,
            last,
            columns,
        }
    }

    /// Begins to copy `COUNT` rows (a multiple of 32) from row `start` on, with zeros for what is not there.
    ///
    /// # Safety
    /// The rows that are there must be readable. The memory from `to` on belongs to the copy until it is waited for.
    #[inline(always)]
    pub unsafe fn copy<const COUNT: usize>(&self, to: Shared, start: i32) {
        let whole = self.columns == PARTS as u32 * 16
            && start >= self.first
            && start + COUNT as i32 <= self.last;
        // SAFETY: the caller's promise.
        unsafe {
            if whole {
                self.each::<COUNT>(to, start, |to, from, _, _| to.copy(from));
            } else {
                self.each::<COUNT>(to, start, |to, from, row, column| {
                    let there = row >= self.first && row < self.last && column < self.columns;
                    to.copy_or_zero(from, there);
                });
            }
        }
    }

    /// Calls `f` with each 16 bytes that this thread copies: where to, from where, row and column.
    #[inline(always)]
    fn each<const COUNT: usize>(
        &self,
        to: Shared,
        start: i32,
        f: impl Fn(Shared, *const u8, i32, u32),
    ) {
        let thread = thread::threadIdx_x();
        let (row, column) = (thread / Self::ACROSS, thread % Self::ACROSS);
        let mut to = to.at(Rows::<PARTS>::offset(row, column * 16));
        let mut row = start + row as i32;
        let mut from = self.row(row);
        for _ in 0..COUNT / Self::DOWN as usize {
            for i in 0..PARTS as u32 * 2 / Self::ACROSS {
                let across = i * Self::ACROSS;
                let column = (across + column) * 8;
                f(
                    to.at(across * 16),
                    from.wrapping_add(across as usize * 16),
                    row,
                    column,
                );
            }
            row += Self::DOWN as i32;
            to = to.at(Self::DOWN * Rows::<PARTS>::BYTES);
            from = from.wrapping_offset((i64::from(Self::DOWN) * self.stride) as isize);
        }
    }

    #[inline(always)]
    fn row(&self, row: i32) -> *const u8 {
        self.data
            .wrapping_offset((i64::from(row) * self.stride) as isize)
    }
}
