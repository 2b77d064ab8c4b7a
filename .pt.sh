cd /work/h/merge; export PYTHONPATH=/work/h/merge/src:/work/h/merge/plugins:/work/h/merge; exec .venv/bin/python -m "$@"
