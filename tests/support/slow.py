"""Cases that only `make test-slow` runs."""

import subprocess
import zlib
from pathlib import Path

import pytest

# Each test that is not quick runs at one commit in so many, and these at every one.
TURNS = 3
ALWAYS = {"test_scikit_learns_own_checks"}

# Of tests with many cases of a kind the ordinary run takes every so many-th.
EVERY = {
    "test_a_bound_and_its_gradient_need_no_array_of_rows_by_points": 4,
    "test_a_classifier_finds_the_signal": 2,
    "test_a_few_mutated_files": 4,
    "test_a_fit_with_thinned_rows_is_resumed": 3,
    "test_a_folder_is_learned_in_batches": 2,
    "test_a_foreign_checkpoint_is_refused_by_what_differs": 6,
    "test_a_function_is_recovered_from_its_derivatives_and_averages": 2,
    "test_a_function_that_never_works_is_an_error_in_its_own_words": 6,
    "test_a_killed_fit_goes_on_to_the_same_bits": 2,
    "test_a_known_density_stays": 8,
    "test_a_law_is_kept_and_found": 4,
    "test_a_likelihood_of_log_prob_alone_conforms": 3,
    "test_a_limit_ends_it_with_what_there_is": 2,
    "test_a_method_conforms": 2,
    "test_a_posterior_is_exported": 4,
    "test_a_power_towards_zero_is_variational": 2,
    "test_a_regressor_finds_the_signal": 2,
    "test_a_resumed_fit_is_an_uninterrupted_one": 2,
    "test_a_resumed_search_ends_with_the_same_bits": 12,
    "test_a_saved_posterior_predicts_the_same_bits": 2,
    "test_a_scale_mixture_integrates_back": 2,
    "test_a_search_goes_on_under_other_rules_of_stopping": 2,
    "test_a_second_fit_of_batches_or_draws_compiles_nothing": 4,
    "test_a_second_fit_of_the_same_shape_compiles_nothing": 2,
    "test_a_series_is_as_with_dense_algebra": 2,
    "test_a_single_latent_function": 2,
    "test_a_weight_is_a_number_of_copies": 8,
    "test_a_wide_prior_does_not_lead_to_a_wide_stationary_point": 2,
    "test_a_wrong_augmentation_is_caught": 2,
    "test_a_wrong_representation_is_caught": 3,
    "test_a_wrong_sampler_is_caught": 2,
    "test_algebra_of_dense_and_of_points_at_all_rows": 4,
    "test_all_rows_as_one_batch_give_the_derivatives_of_all_rows": 6,
    "test_an_approximate_evidence_is_integrated_as_it_is": 2,
    "test_an_approximation_conforms": 4,
    "test_an_update_is_a_filter_step": 2,
    "test_answers_are_those_of_the_likelihood_in_jax": 4,
    "test_any_likelihood_on_top": 4,
    "test_augmentation_conforms": 18,
    "test_batches_that_weigh_more_count_as_much_more": 2,
    "test_block_quadrature_is_the_logarithm": 2,
    "test_bound_against_brute_force": 3,
    "test_bound_and_gradient_are_those_of_the_rows": 12,
    "test_chains_go_on_to_the_same_bits": 3,
    "test_chains_have_the_density_of_dense_where_all_rows_are_neighbours": 2,
    "test_chains_of_weights_and_latents_have_the_moments_of_quadrature": 2,
    "test_classes_have_probabilities_without_the_row": 2,
    "test_coefficients_are_those_of_generalised_least_squares": 4,
    "test_concave_likelihoods_are_concave": 8,
    "test_conjugate_methods_take_the_likelihood_that_they_can": 2,
    "test_covariances_are_inner_products_by_quadrature": 2,
    "test_dense_formula": 6,
    "test_density_adds_up_to_one_and_missing_outputs_are_integrated_out": 2,
    "test_derivatives_are_those_of_differences": 3,
    "test_derivatives_are_those_of_the_bound_wherever_the_sites_are": 4,
    "test_draws": 12,
    "test_draws_and_paths_have_the_posterior_moments": 2,
    "test_draws_have_the_covariance_without_a_factorisation": 2,
    "test_draws_have_the_density": 4,
    "test_duplicates_that_conflict": 2,
    "test_each_block_is_that_of_the_part": 2,
    "test_each_block_raises_a_bound_below_the_evidence": 24,
    "test_eigenvalues_add_up_to_the_variance": 3,
    "test_entropy_is_the_sum_of_overlaps": 2,
    "test_error_of_the_gram_matrix_by_kind_of_features": 2,
    "test_estimators_predict_the_same_bits": 6,
    "test_every_kernel_is_as_with_dense_algebra": 4,
    "test_every_name_fits_a_regressor": 12,
    "test_every_name_is_defined": 2,
    "test_every_optimiser_climbs": 8,
    "test_every_rule_finds_what_it_finds_by_dense_algebra": 4,
    "test_every_rule_is_as_with_dense_algebra": 2,
    "test_every_rule_is_near_what_all_rows_give": 2,
    "test_every_selection_covers_old_rows_and_new": 4,
    "test_evidence_against_quadrature": 4,
    "test_evidence_and_gradient": 3,
    "test_evidence_and_predictions_are_those_of_dense_formulas": 4,
    "test_examples_in_docstrings_hold": 6,
    "test_expectation_propagation_of_rows_much_narrower_than_the_prior": 2,
    "test_exposure_scales_the_count": 2,
    "test_factor_and_inverse_below_and_beyond_a_leaf": 4,
    "test_far_from_the_data_counts_are_as_usual": 2,
    "test_fewer_rows_than_functions": 2,
    "test_fixed_hyperparameters_come_to_the_posterior_of_all_rows": 3,
    "test_gamma": 3,
    "test_gaussian_noise_is_exact": 4,
    "test_gradient_of_the_evidence": 6,
    "test_gradients": 2,
    "test_gradients_are_finite_where_outputs_are_missing": 2,
    "test_gradients_are_those_of_differences": 2,
    "test_gradients_are_unbiased_and_tell_their_spread": 4,
    "test_growing_data_compile_nothing": 4,
    "test_hyperparameters_are_learned_by_name": 2,
    "test_in_other_units_of_the_inputs": 2,
    "test_in_single_precision_where_jax_is": 2,
    "test_inputs": 18,
    "test_integers_and_truth_values": 2,
    "test_interpolation": 2,
    "test_inverse_gaussian": 4,
    "test_it_can_be_mapped_and_passed_to_a_compiled_function": 2,
    "test_it_ends_at_the_most_probable_hyperparameters": 3,
    "test_it_finds_the_gaussian_that_it_can": 6,
    "test_its_gradient_is_that_of_dense_formulas": 2,
    "test_jit_vmap_and_repetition_change_nothing": 6,
    "test_joint_draws_have_the_posterior_moments": 2,
    "test_kernel_conforms": 10,
    "test_knots_are_where_they_leave_least_open": 2,
    "test_labels_that_come_later_are_known_from_the_first_call": 2,
    "test_laplace_is_the_expansion_at_the_mode": 2,
    "test_latents_are_at_the_rows_that_they_belong_to": 6,
    "test_latents_that_nothing_ties_are_as_with_single_sites": 3,
    "test_learned_hyperparameters_are_as_good_as_from_all_rows": 6,
    "test_likelihood_conforms_and_is_complete": 18,
    "test_many_variables_express_the_prior_also_outside_of_the_rows": 12,
    "test_means_and_deviations_are_those_of_importance_sampling": 4,
    "test_means_deviations_and_the_integral_of_a_skewed_density": 3,
    "test_method_conforms": 10,
    "test_methods_that_cannot_go_on_say_so": 4,
    "test_metrics_of_latent_functions_are_those_published": 2,
    "test_moments_against_brute_force": 6,
    "test_moments_quantiles_and_draws_agree": 2,
    "test_negative_precisions_are_what_linear_algebra_says": 2,
    "test_noise_that_is_correlated_with_the_function": 4,
    "test_numbers_are_in_their_own_order": 4,
    "test_of_targets": 2,
    "test_of_the_map": 2,
    "test_one_component_by_quadrature_is_variational_inference": 2,
    "test_one_layer_with_gaussian_noise_is_bayesian_linear_regression": 6,
    "test_orthant_probability": 4,
    "test_other_noise_comes_near_all_rows_at_once": 2,
    "test_outside_of_jax_it_is_the_same_posterior": 64,
    "test_over_models_and_data_sets": 8,
    "test_padded_rows_weigh_nothing_and_are_few": 4,
    "test_parameters_are_recovered": 2,
    "test_parts_are_those_of_direct_conditioning": 4,
    "test_plain_gradients_are_those_of_differences": 4,
    "test_points_are_distinct": 3,
    "test_points_can_be_learned": 2,
    "test_polya_gamma": 2,
    "test_posterior_is_near_long_chains": 4,
    "test_posteriors": 2,
    "test_powers_of_the_logistic_function_integrate_back": 4,
    "test_predictions_are_of_functions": 2,
    "test_predictions_are_of_joint_marginals": 4,
    "test_predictions_are_those_of_the_exact_process": 6,
    "test_predictive_densities_where_the_likelihood_is_narrow": 8,
    "test_probabilities_are_those_of_the_true_moments": 2,
    "test_products_and_slopes": 6,
    "test_products_of_triangular_matrices": 2,
    "test_random_features_have_the_kernels_covariance": 8,
    "test_representation_conforms": 9,
    "test_rows_that_fill_up_change_nothing": 12,
    "test_sampler_conforms": 9,
    "test_settings_of_fit": 2,
    "test_single_precision": 6,
    "test_slopes_and_curvatures_at_extreme_latents": 12,
    "test_slopes_are_those_of_differences": 8,
    "test_slopes_are_those_of_differences_of_the_bound": 4,
    "test_slopes_in_hyperparameters_are_those_of_differences": 4,
    "test_sparse_with_every_row_is_dense": 8,
    "test_sweeps_leave_the_joint_law_as_it_is": 6,
    "test_targets": 4,
    "test_terms_by_chunks_are_those_of_all_rows_at_once": 2,
    "test_the_augmentation_rule_conforms": 16,
    "test_the_augmented_bound_rises_and_stays_below_the_evidence": 2,
    "test_the_density_is_that_of_the_prior_in_unconstrained_coordinates": 4,
    "test_the_density_is_that_of_the_white_coefficients": 24,
    "test_the_estimate_is_unbiased": 2,
    "test_the_estimate_of_the_evidence_tells_its_error": 2,
    "test_the_flow_is_that_of_the_source": 2,
    "test_the_gap_is_what_the_bound_falls_short_of_the_other": 4,
    "test_the_laplace_rule_conforms": 8,
    "test_the_map_to_white_coefficients_and_its_inverse": 2,
    "test_the_moment_rule_conforms": 8,
    "test_the_posterior_is_that_of_dense_algebra": 2,
    "test_the_same_numbers_as_the_public_ones": 2,
    "test_the_score_function_is_unbiased": 10,
    "test_the_variational_rule_conforms": 4,
    "test_there_is_no_derivative_in_the_inputs": 6,
    "test_they_hold_the_probability": 2,
    "test_to_the_end_it_is_cholesky": 2,
    "test_units_of_one_latent_function_change_nothing": 4,
    "test_value_and_gradient": 8,
    "test_what_has_no_parts_says_so": 2,
    "test_what_is_frozen_stays": 4,
    "test_what_it_cannot_do_is_refused": 3,
    "test_what_it_is_at_its_limits": 3,
    "test_why_there_is_no_result": 4,
    "test_with_gaussian_noise_it_is_the_exact_posterior": 4,
    "test_with_gaussian_noise_weights_and_functions_have_one_posterior": 2,
    "test_without_its_auxiliary_variables_the_augmented_density_is_the_other": 2,
    "test_wrong_input_is_answered_in_one_sentence": 2,
}


def slow_parameters(*values):
    """Parameters of a test under the slow marker: another case of the test runs without it."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def thin_out(items):
    """Mark the cases that the ordinary run leaves out, evenly of each test's that are not slow.

    Of tests that are not quick a run takes those whose turn it is, by the commit.
    """
    seen, turn = {}, turn_of_commit()
    for item in items:
        name = getattr(item, "originalname", None)
        if name not in ALWAYS and not item.get_closest_marker("quick"):
            place = f"{item.nodeid.partition('::')[0]}::{name}"
            if zlib.crc32(place.encode()) % TURNS != turn:
                item.add_marker(pytest.mark.slow)
        if name not in EVERY or item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        place = seen[item.parent, name] = seen.get((item.parent, name), -1) + 1
        if place % EVERY[name]:
            item.add_marker(pytest.mark.slow)


def turn_of_commit():
    """Which tests' turn it is: the same in all processes of a run."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    except OSError:  # without Git
        told = ""
    return int(told.strip() or "0", 16) % TURNS
