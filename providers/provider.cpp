#include "providers/provider.hpp"
