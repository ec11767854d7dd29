"""The model beside modeling.py: configuration, layouts, faster kernels."""
