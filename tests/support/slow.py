"""Cases that only `make test-slow` runs."""

import pytest

# Of tests with many cases of a kind the ordinary run takes every so many-th.
EVERY = {
    "test_a_bound_and_its_gradient_need_no_array_of_rows_by_points": 4,
    "test_a_fit_with_thinned_rows_is_resumed": 3,
    "test_a_folder_is_learned_in_batches": 2,
    "test_a_foreign_checkpoint_is_refused_by_what_differs": 6,
    "test_a_function_that_never_works_is_an_error_in_its_own_words": 6,
    "test_a_killed_fit_goes_on_to_the_same_bits": 2,
    "test_a_known_density_stays": 4,
    "test_a_likelihood_of_log_prob_alone_conforms": 3,
    "test_a_resumed_search_ends_with_the_same_bits": 12,
    "test_a_second_fit_of_batches_or_draws_compiles_nothing": 4,
    "test_a_weight_is_a_number_of_copies": 4,
    "test_a_wrong_representation_is_caught": 3,
    "test_algebra_of_dense_and_of_points_at_all_rows": 4,
    "test_all_rows_as_one_batch_give_the_derivatives_of_all_rows": 6,
    "test_any_likelihood_on_top": 4,
    "test_augmentation_conforms": 18,
    "test_bound_against_brute_force": 3,
    "test_bound_and_gradient_are_those_of_the_rows": 6,
    "test_chains_go_on_to_the_same_bits": 3,
    "test_concave_likelihoods_are_concave": 8,
    "test_covariances_are_inner_products_by_quadrature": 2,
    "test_derivatives_are_those_of_differences": 3,
    "test_derivatives_are_those_of_the_bound_wherever_the_sites_are": 4,
    "test_draws": 6,
    "test_each_block_raises_a_bound_below_the_evidence": 6,
    "test_every_kernel_is_as_with_dense_algebra": 4,
    "test_every_name_fits_a_regressor": 6,
    "test_every_optimiser_climbs": 8,
    "test_every_rule_finds_what_it_finds_by_dense_algebra": 4,
    "test_every_selection_covers_old_rows_and_new": 4,
    "test_evidence_and_gradient": 3,
    "test_evidence_and_predictions_are_those_of_dense_formulas": 4,
    "test_examples_in_docstrings_hold": 4,
    "test_exposure_scales_the_count": 2,
    "test_fixed_hyperparameters_come_to_the_posterior_of_all_rows": 3,
    "test_gamma": 3,
    "test_gradient_of_the_evidence": 6,
    "test_gradients_are_those_of_differences": 2,
    "test_inputs": 18,
    "test_integers_and_truth_values": 2,
    "test_it_finds_the_gaussian_that_it_can": 6,
    "test_jit_vmap_and_repetition_change_nothing": 6,
    "test_kernel_conforms": 10,
    "test_labels_that_come_later_are_known_from_the_first_call": 2,
    "test_laplace_is_the_expansion_at_the_mode": 2,
    "test_latents_that_nothing_ties_are_as_with_single_sites": 3,
    "test_learned_hyperparameters_are_as_good_as_from_all_rows": 6,
    "test_likelihood_conforms_and_is_complete": 18,
    "test_many_variables_express_the_prior_also_outside_of_the_rows": 6,
    "test_means_and_deviations_are_those_of_importance_sampling": 4,
    "test_method_conforms": 10,
    "test_methods_that_cannot_go_on_say_so": 4,
    "test_moments_against_brute_force": 6,
    "test_noise_that_is_correlated_with_the_function": 4,
    "test_one_layer_with_gaussian_noise_is_bayesian_linear_regression": 6,
    "test_outside_of_jax_it_is_the_same_posterior": 16,
    "test_over_models_and_data_sets": 8,
    "test_padded_rows_weigh_nothing_and_are_few": 4,
    "test_posterior_is_near_long_chains": 4,
    "test_powers_of_the_logistic_function_integrate_back": 4,
    "test_predictions_are_of_functions": 2,
    "test_predictions_are_of_joint_marginals": 4,
    "test_predictions_are_those_of_the_exact_process": 6,
    "test_predictive_densities_where_the_likelihood_is_narrow": 8,
    "test_probabilities_are_those_of_the_true_moments": 2,
    "test_products_and_slopes": 6,
    "test_random_features_have_the_kernels_covariance": 4,
    "test_representation_conforms": 9,
    "test_rows_that_fill_up_change_nothing": 6,
    "test_sampler_conforms": 9,
    "test_scikit_learns_own_checks": 6,
    "test_single_precision": 6,
    "test_slopes_and_curvatures_at_extreme_latents": 3,
    "test_slopes_are_those_of_differences": 4,
    "test_slopes_are_those_of_differences_of_the_bound": 4,
    "test_slopes_in_hyperparameters_are_those_of_differences": 4,
    "test_sparse_with_every_row_is_dense": 8,
    "test_sweeps_leave_the_joint_law_as_it_is": 6,
    "test_targets": 4,
    "test_the_augmentation_rule_conforms": 8,
    "test_the_density_is_that_of_the_white_coefficients": 12,
    "test_the_estimate_of_the_evidence_tells_its_error": 2,
    "test_the_laplace_rule_conforms": 4,
    "test_the_moment_rule_conforms": 4,
    "test_the_same_numbers_as_the_public_ones": 2,
    "test_the_score_function_is_unbiased": 10,
    "test_the_variational_rule_conforms": 4,
    "test_there_is_no_derivative_in_the_inputs": 6,
    "test_value_and_gradient": 4,
    "test_what_is_frozen_stays": 4,
    "test_what_it_is_at_its_limits": 3,
}


def slow_parameters(*values):
    """Parameters of a test under the slow marker: another case of the test runs without it."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def thin_out(items):
    """Mark the cases that the ordinary run leaves out, evenly of each test's that are not slow."""
    seen = {}
    for item in items:
        name = getattr(item, "originalname", None)
        if name not in EVERY or item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        place = seen[item.parent, name] = seen.get((item.parent, name), -1) + 1
        if place % EVERY[name]:
            item.add_marker(pytest.mark.slow)
