//! The suite that every store passes below an [`L2Adapter`](hfbucket::l2::L2Adapter).
//!
//! Its functions, in the other modules `l2_…`, take a fresh [`Harness`](crate::l2_backends::Harness);
//! `l2_suite!` makes a module of tests of them.

macro_rules! l2_suite {
    ($backend:ident: $harness:path) => {
        mod $backend {
            l2_suite!(@ l2_operations, $harness;
                stored_chunks_are_found_and_loaded
                objects_lie_where_lmcache_puts_them
                salts_groups_and_odd_names_are_apart
                empty_batches_are_fine
                of_duplicates_the_last_wins
                overwriting_with_another_size_is_counted_right
                empty_objects_are_stored_and_are_no_hits
                a_load_of_another_size_is_a_miss
                what_is_known_is_not_asked_again
                without_a_lifetime_the_store_is_always_asked
                locked_keys_are_not_deleted
                detached_locks_end_by_key
            );
            l2_suite!(@ l2_failures, $harness;
                each_key_of_a_batch_fails_for_itself
                a_lost_acknowledgement_of_a_store_is_noticed
                a_failed_store_that_nobody_can_settle_records_nothing
                a_failed_overwrite_counts_what_is_there
                failed_deletes_stay_counted
                a_lost_acknowledgement_of_a_delete_is_noticed
                deleting_what_is_not_there_is_fine
                a_lookup_that_fails_is_a_miss_that_is_not_remembered
                uploads_do_not_hold_up_lookups_and_loads
                a_slow_lookup_never_overwrites_a_newer_store
                a_key_being_deleted_is_no_hit
                stores_and_deletes_of_a_key_take_turns
                a_load_that_finds_nothing_corrects_the_cache
                other_writers_sizes_correct_usage
                a_stream_cut_short_is_no_hit
            );
            l2_suite!(@ l2_eviction, $harness;
                a_full_cache_evicts_the_oldest
                locked_keys_survive_eviction_until_unlocked
                eviction_survives_failed_deletes
                a_dropped_store_is_finished
                close_waits_and_ends_everything
            );
            l2_suite!(@ l2_policies, $harness;
                salts_stay_within_their_quotas
                a_capacity_holds_for_all_salts_together
                a_ratio_of_bytes_frees_bytes
                the_scan_resistant_policy_keeps_what_is_used
                hard_admission_never_exceeds_the_capacity
            );
            l2_suite!(@ l2_recovery, $harness;
                a_restart_remembers_sizes_salts_and_order
                a_full_pool_is_relieved_at_start
                work_goes_on_while_the_pool_is_listed
                a_failed_listing_is_tried_again
                keys_are_listed_page_by_page
            );
            l2_suite!(@ l2_pools, $harness;
                a_resync_counts_what_others_did
                what_is_in_flight_is_not_counted_twice
                two_adapters_keep_one_pool_within_its_capacity
            );
            l2_suite!(@ l2_lookups, $harness;
                a_prefix_lookup_stops_at_the_first_miss
                concurrent_lookups_share_one_question
                a_cancelled_lookup_does_not_disturb_those_who_joined
                a_question_older_than_a_store_is_not_joined
                events_tell_what_happened_in_order
            );
        }
    };
    (@ $part:ident, $harness:path; $($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::$part::$test(&$harness().await).await;
            }
        )*
    };
}
