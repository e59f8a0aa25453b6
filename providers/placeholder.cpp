#include "providers/placeholder.hpp"
