"""latentgp."""
from latentgp._version import __version__
from latentgp.kernels import *
from latentgp.likelihoods import *
from latentgp.latents import *
from latentgp.models import LatentGP
from latentgp.data import Data
