#include <math.h>
#include <stdint.h>
#include <string.h>

#define NT_MAX_AXES 8
