"""The one kind of error a user can cause, and how every script reports it."""

import logging as standard_logging
import sys

from absl import app, flags, logging


class InputError(ValueError):
  """Bad input: the message says what, where and what to do, in one line."""


def run(main, takes_arguments=False):
  """Runs `main` as a script; bad input ends it with one line and exit 1.

  Args:
    main: function of nothing, or of the list of arguments that are not flags.
    takes_arguments: bool, whether there may be such arguments.
  """

  def guarded_main(argv):
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(
        standard_logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    # Silences TensorFlow's deprecation warnings.
    standard_logging.getLogger("tensorflow").setLevel("ERROR")
    try:
      if takes_arguments:
        main(argv[1:])
      elif argv[1:]:
        raise InputError("unexpected argument %r: everything is given as "
                         "--flag=value" % argv[1])
      else:
        main()
    except (InputError, OSError) as error:
      if isinstance(error, OSError) and not error.filename:
        raise
      sys.exit("ERROR: %s" % error)

  app.run(guarded_main)


def require_flags(*names):
  """Ends the script with one line if a required flag is missing."""
  for name in names:
    if not flags.FLAGS[name].value:
      raise InputError("--%s is required; see --help" % name)
