#include "providers/environment.hpp"
