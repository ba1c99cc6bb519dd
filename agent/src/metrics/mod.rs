//! Guest metrics: one collector a file, one registration table, one page.
