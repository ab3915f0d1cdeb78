"""Estimators with the interface of scikit-learn."""

try:
    from mtnet.estimators.few_shot import MTNetClassifier, MTNetRegressor
    from mtnet.estimators.pipelines import meta_fit_pipeline
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    message = "the estimators need scikit-learn: pip install 'mtnet[estimators]'"
    raise ImportError(message) from None

__all__ = ["MTNetClassifier", "MTNetRegressor", "meta_fit_pipeline"]
