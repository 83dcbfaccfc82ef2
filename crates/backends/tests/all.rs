//! Every test file of this crate in one program, which builds much faster than one each.
//! `cargo xtask tidy` finds a file that is missing here. One file: `cargo test -p backends --test all FILE::`.

mod a_new_folder_is_made;
mod a_vanished_folder_deletes_nothing;
mod bounds;
mod editor_saves_are_one_edit;
mod every_backend_conforms;
mod git_pull_is_one_edit;
mod half_written_manifest_keeps_the_last;
mod hostile_manifests;
mod local_changes_are_put_right;
mod one_object_in_two_files;
mod operations_lie_beside_manifests;
mod own_writes_do_not_echo;
mod rsync_is_one_edit;
mod status_is_a_subresource;
mod support;
mod symlinks_do_not_escape;
mod the_kernel_reports_changes;
