#include "api/errors.hpp"
