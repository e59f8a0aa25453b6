#include "api/tokens.hpp"
