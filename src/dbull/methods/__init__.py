"""Estimators with the interface of scikit-learn; checking and converting input lives here."""
